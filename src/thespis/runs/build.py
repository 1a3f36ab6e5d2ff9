"""Builds the pieces of a run from its config, and refuses those that cannot work together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis import envs
from thespis.algos.frame_stack import FrameStack
from thespis.core import Box, HostEnv, Spec, Step, imitates
from thespis.engine.loop import Learner, Loop
from thespis.engine.streams import Stream, member_keys
from thespis.envs.gymnasium import Gymnasium
from thespis.errors import ThespisError
from thespis.replay import demonstrations
from thespis.runs import sizes
from thespis.runs.config import Config
from thespis.tuning import hyper
from thespis.values import default_of, ungrouped
from thespis.xla.placement import mesh_for
from thespis.xla.threads import process_index_and_count

DEEPEST = 8  # runs that may act by the skills of one another
SCHEDULE = "schedule_updates"  # the hyper-parameter whose 0 means all updates of the run


def build(
    config: Config, env: Any = None, eval_env: Any = None, training: bool = True
) -> tuple[Loop, Any]:
    """Returns the loop and the environment of evaluations.

    `env` and `eval_env` replace those of the config. Unless it is for `training`, the memory that
    the replay would need is not checked.
    """
    env, options = envs.make(config.env if env is None else env), dict(config.options)
    if config.skills_from:
        env = on_skills(env, config)
    eval_env = config.eval_env if eval_env is None else eval_env
    eval_env = env if eval_env is None else envs.make(eval_env)
    if "descriptor" in options:
        plain, descriptor = env, options["descriptor"]
        eval_env = envs.described(eval_env, descriptor)
        env = envs.described(env, descriptor)
        if env is not plain:  # the observation contains the descriptor now
            options["descriptor"] = None
    if training and config.env_workers is not None:
        if eval_env is env or isinstance(eval_env, Gymnasium):
            eval_env = in_workers(eval_env, config)
        env = in_workers(env, config)
    if training and config.collectors is not None:
        refuse_collectors(env, config)
    if shapes(eval_env.spec) != shapes(env.spec):
        raise ThespisError(
            f"eval_env = {envs.label(eval_env)} has {shapes(eval_env.spec)}, but env = "
            f"{envs.label(env)} has {shapes(env.spec)}: give one of the same shapes"
        )
    _, processes = process_index_and_count()
    if config.members % processes:
        raise ThespisError(
            f"{processes} processes cannot share {config.members} member(s) evenly: start as many "
            "as divide that number"
        )
    loop = Loop(
        algo=algorithm(config, env.spec, options),
        env=env,
        envs=config.envs,
        capacity=-(-min(config.buffer_size, config.steps) // config.envs),
        updates_per_step=config.update_ratio,
        side_by_side=jax.default_backend() != "cpu",
        mesh=mesh_for(config.members, config.devices or 1),
        shared=config.shared,
    )
    if loop.shared and loop.rule is not None:
        raise ThespisError(
            "pbt.replay = shared works without priorities only: leave out pbt.replay or them"
        )
    if training:
        require_memory(config, loop)
    return loop, eval_env


def algorithm(config: Config, spec: Spec, options: dict[str, Any]) -> Any:
    choices = ungrouped(config.Algorithm, options)
    if config.frame_stack == 1:
        return config.Algorithm(spec, **choices)
    return FrameStack.wrap(config.Algorithm, spec, config.frame_stack, **choices)


def on_skills(env: Any, config: Config) -> Any:
    """Returns an environment whose actions choose among the skills of another run."""
    from thespis.runs.run import SavedRun
    from thespis.runs.skill_actions import over_skills

    if config.eval_env is not None:
        raise ThespisError("skills_from: evaluations use the same skills; leave out eval_env")
    saved = [SavedRun(str(config.skills_from), trust=config.trust)]
    while saved[-1].config.skills_from and len(saved) < DEEPEST:
        saved.append(SavedRun(str(saved[-1].config.skills_from), trust=config.trust))
    if saved[-1].config.skills_from:
        raise ThespisError(
            f"skills_from = {saved[0].path} acts by the skills of {saved[1].path}, and so on: in a "
            f"circle, or over more than {DEEPEST} runs; give a run with fewer below it"
        )
    return over_skills(env, saved[0], config.skill_steps)


def in_workers(env: Any, config: Config) -> Any:
    """Returns the environment, whose copies are stepped by other processes."""
    if isinstance(env, Gymnasium) and not config.skills_from:
        return env.in_workers(config.env_workers or 1)
    what = "frozen skills act in this process" if config.skills_from else f"{env.name} is none"
    raise ThespisError(
        f"env_workers = {config.env_workers} is for environments of Gymnasium, and {what}: leave "
        "env_workers out"
    )


def refuse_collectors(env: Any, config: Config) -> None:
    """Refuses collectors of what they cannot step."""
    if isinstance(env, Gymnasium) and not config.skills_from:
        return
    what = "frozen skills act in this process" if config.skills_from else f"{env.name} is none"
    raise ThespisError(
        f"collectors = {config.collectors} are for environments of Gymnasium, and {what}: leave "
        "collectors out"
    )


def shapes(spec: Spec) -> str:
    """Describes the spaces that an environment must have for the same networks to act in it."""
    text = lambda x: f"{np.dtype(x.dtype).name}{list(x.shape)}"
    obs = jax.tree_util.tree_leaves_with_path(spec.obs)
    parts = [f"{jax.tree_util.keystr(path)} {text(x)}".strip() for path, x in obs]
    kinds = (f"box{list(k.shape)}" if isinstance(k, Box) else f"one of {k.n}" for k in spec.actions)
    of_agents = f" of {', '.join(spec.agents)}" if spec.agents else ""
    return f"observations {', '.join(parts)} and actions {', '.join(kinds)}{of_agents}"


def require_memory(config: Config, loop: Loop) -> None:
    """Refuses more members than fit in memory, which would otherwise fail after hours."""
    have, need = sizes.memory() - sizes.base(), sizes.member_sizes(loop).total
    fit, here = max(0, int(have // need)), config.members // process_index_and_count()[1]
    if fit < here:
        gib = lambda size: f"{size / 2**30:,.1f} GiB"
        advice = f"{fit} member(s) fit, or lower it" if fit else "lower it"
        raise ThespisError(
            f"buffer_size = {config.buffer_size} for {here} member(s) needs "
            f"{gib(need * here)} and this machine has {gib(max(0, have))} for them: {advice}"
        )


def hyper_parameters(config: Config, changes: dict[str, Any] | None = None) -> Any:
    """Returns `Hyper` with leaves [members], from the config and later changes to it."""
    values = config.hp | (changes or {})
    return resolve_schedule(config, hyper.fill(config.Algorithm.Hyper, values, config.members))


def resolve_schedule(config: Config, hps: Any, note: Callable[[str], None] | None = None) -> Any:
    """Returns `hps` with `schedule_updates` = 0 replaced by the number of updates of the run.

    Algorithms that declare this hyper-parameter may divide by it. The config decides where it is
    replaced, not the values in `hps`: a run that is made longer gets a longer schedule, with a
    note.
    """
    spanning, total = spans_run(config), total_updates(config)
    if not spanning.any():
        return hps
    before = np.asarray(getattr(hps, SCHEDULE))
    if note and (changed := spanning & (before != total)).any():
        text = f"{SCHEDULE} was {before[changed][0]:,.0f} and is {total:,} from here on"
        note(f"{text}: all updates of {config.steps:,} steps")
    new = np.where(spanning, np.float32(total), before)
    return dataclasses.replace(hps, **{SCHEDULE: jax.device_put(new)})


def spans_run(config: Config) -> np.ndarray:
    """Returns bool [members]: which members have a schedule that lasts as long as the run.

    None has if the length of the schedule is tuned, or if lr_schedule is constant.
    """
    Hyper, members = config.Algorithm.Hyper, config.members
    known = hyper.defaults(Hyper)
    tuned = config.tuning.tunes(Hyper, config.hp) if config.tuner else []
    default = default_of(config.Algorithm, "lr_schedule")
    constant = config.options.get("lr_schedule", default) == "constant"
    if SCHEDULE not in known or SCHEDULE in tuned or constant:
        return np.zeros(members, bool)
    return np.broadcast_to(np.asarray((known | config.hp)[SCHEDULE]) == 0, members)


def total_updates(config: Config) -> int:
    """Returns the gradient updates of every member until the end of the run, at least 1."""
    first, last = (config.iterations(n) for n in (config.learning_starts or 1, config.steps))
    return max(1, int((last - first) * config.envs * config.update_ratio))


def blank(config: Config, loop: Loop) -> Learner:
    """Returns the shapes and types of a learner, leaves [members, ...]."""
    members, obs = config.members, loop.env.spec.obs
    hps = hyper.fill(config.Algorithm.Hyper, {}, members)
    arrived = None
    if isinstance(loop.env, HostEnv):
        struct = lambda shape, dtype: jax.ShapeDtypeStruct((members, loop.envs, *shape), dtype)
        dim = loop.algo.spec.reward_dim
        reward = struct(() if dim is None else (dim,), jnp.float32)
        numbers = (reward, struct((), bool), struct((), bool))
        arrived = Step(jax.tree.map(lambda s: struct(s.shape, s.dtype), obs), *numbers)  # type: ignore
    return jax.eval_shape(
        loop.init, jnp.asarray(config.seeds, jnp.int32), hps, blank_demos(loop), arrived
    )


def blank_demos(loop: Loop) -> Any:
    """Returns demonstrations of the right shapes, or None if the algorithm does not imitate."""
    return demonstrations.blank(loop.env.spec) if imitates(loop.algo) else None


def state_shapes(config: Config, loop: Loop) -> Any:
    """Returns shapes and types of the algorithm's state, leaves [members, ...]."""
    hps = hyper_parameters(config)
    init = lambda seeds, hps: jax.vmap(loop.algo.init)(member_keys(seeds, Stream.INIT, 0), hps)
    return jax.eval_shape(init, np.asarray(config.seeds, np.int32), hps)
