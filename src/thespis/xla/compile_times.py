"""How long a run compiles, by program. Importing this module does not import JAX."""

from __future__ import annotations

FETCHED = "/thespis/fetch_duration"  # the event of a program that program_cache.py has fetched
KEPT = "kept_"  # prefix of the names of programs that it caches


class CompileTimes:
    """Seconds spent on compiling, or on fetching cached programs, by program."""

    def __init__(self):
        import jax

        self.programs: dict[str, float] = {}
        jax.monitoring.register_event_duration_secs_listener(self.note)

    @property
    def seconds(self) -> float:
        return sum(self.programs.values())

    def note(self, event: str, duration_secs: float, **more: str | int) -> None:
        compiling = "/backend_compile_duration", "/jaxpr_to_mlir_module_duration", FETCHED
        if event.endswith(compiling):
            name = str(more.get("fun_name", "")).removeprefix("jit(").removesuffix(")")
            name = name.removeprefix(KEPT) or "others"
            self.programs[name] = self.programs.get(name, 0.0) + duration_secs

    def close(self) -> None:
        import jax

        jax.monitoring.unregister_event_duration_listener(self.note)
