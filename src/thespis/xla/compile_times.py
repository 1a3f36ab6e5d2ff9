"""What compiling costs a run, by program. It does not import JAX before it is asked."""

from __future__ import annotations

FETCHED = "/thespis/fetch_duration"  # the event of a program that program_cache.py has fetched
KEPT = "kept_"  # how the names of programs begin that it keeps


class CompileTimes:
    """Seconds spent compiling (or fetching what was compiled before), by program."""

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
