"""The pieces of a run, made from its config and refused if they cannot work."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis import envs
from thespis.algos.frame_stack import FrameStack
from thespis.core import Box, HostEnv, Spec, Step, imitates
from thespis.engine.loop import Learner, Loop
from thespis.engine.streams import Stream, member_keys
from thespis.errors import ThespisError
from thespis.replay import demonstrations
from thespis.runs import sizes
from thespis.runs.config import Config
from thespis.tuning import hyper
from thespis.values import ungrouped
from thespis.xla.placement import mesh_for
from thespis.xla.threads import process_index_and_count


def build(
    config: Config, env: Any = None, eval_env: Any = None, training: bool = True
) -> tuple[Loop, Any]:
    """The loop and the environment of evaluations. `env`, `eval_env` stand in for the config's.

    What is not for `training` has no replay, and needs no memory for one.
    """
    env, options = envs.make(config.env if env is None else env), dict(config.options)
    if config.skills_from:
        env = on_skills(env, config)
    eval_env = config.eval_env if eval_env is None else eval_env
    eval_env = env if eval_env is None else envs.make(eval_env)
    if "descriptor" in options:
        plain, wanted = env, options["descriptor"]
        eval_env = envs.described(eval_env, wanted)
        env = envs.described(env, wanted)
        if env is not plain:  # it is a part of the observation now
            options["descriptor"] = None
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
        updates_per_step=Fraction(config.updates_per_step).limit_denominator(10**6),
        side_by_side=jax.default_backend() != "cpu",
        mesh=mesh_for(config.members, config.devices or 1),
        shared=config.shared,
    )
    if loop.shared and loop.rule is not None:
        raise ThespisError("pbt.replay = shared has no priorities: leave one of them out")
    if training:
        require_memory(config, loop)
    return loop, eval_env


def algorithm(config: Config, spec: Spec, options: dict[str, Any]) -> Any:
    choices = ungrouped(config.Algorithm, options)
    if config.frame_stack == 1:
        return config.Algorithm(spec, **choices)
    return FrameStack.of(config.Algorithm, spec, config.frame_stack, **choices)


def on_skills(env: Any, config: Config) -> Any:
    """The environment of an agent that chooses among the skills of another run."""
    from thespis.runs.run import SavedRun
    from thespis.runs.skill_actions import over_skills

    if config.eval_env is not None:
        raise ThespisError("skills_from: evaluations are on the skills as well; leave out eval_env")
    return over_skills(
        env, SavedRun(str(config.skills_from), trust=config.trust), config.skill_steps
    )


def shapes(spec: Spec) -> str:
    """What another environment must share to be played by the same networks."""
    text = lambda x: f"{np.dtype(x.dtype).name}{list(x.shape)}"
    obs = jax.tree_util.tree_leaves_with_path(spec.obs)
    parts = [f"{jax.tree_util.keystr(path)} {text(x)}".strip() for path, x in obs]
    kinds = (f"box{list(k.shape)}" if isinstance(k, Box) else f"one of {k.n}" for k in spec.actions)
    of_agents = f" of {', '.join(spec.agents)}" if spec.agents else ""
    return f"observations {', '.join(parts)} and actions {', '.join(kinds)}{of_agents}"


def require_memory(config: Config, loop: Loop) -> None:
    """Refuse members that this machine can never hold, rather than fail after hours."""
    have, need = sizes.memory() - sizes.base(), sizes.of_member(loop).total
    fit, here = max(0, int(have // need)), config.members // process_index_and_count()[1]
    if fit < here:
        gib = lambda size: f"{size / 2**30:,.1f} GiB"
        advice = f"{fit} member(s) fit, or lower it" if fit else "lower it"
        raise ThespisError(
            f"buffer_size = {config.buffer_size} of {here} member(s) needs "
            f"{gib(need * here)} and this machine has {gib(max(0, have))} for them: {advice}"
        )


def blank(config: Config, loop: Loop) -> Learner:
    """Shapes and types of a learner, leaves [members, ...]."""
    members, obs = config.members, loop.env.spec.obs
    hps = hyper.fill(config.Algorithm.Hyper, {}, members)
    arrived = None
    if isinstance(loop.env, HostEnv):
        of = lambda shape, dtype: jax.ShapeDtypeStruct((members, loop.envs, *shape), dtype)
        dim = loop.algo.spec.reward_dim
        reward = of(() if dim is None else (dim,), jnp.float32)
        numbers = (reward, of((), bool), of((), bool))
        arrived = Step(jax.tree.map(lambda s: of(s.shape, s.dtype), obs), *numbers)  # type: ignore
    return jax.eval_shape(
        loop.init, jnp.asarray(config.seeds, jnp.int32), hps, shown(loop), arrived
    )


def shown(loop: Loop) -> Any:
    """Demonstrations of the right shapes, if the algorithm needs any."""
    return demonstrations.blank(loop.env.spec) if imitates(loop.algo) else None


def state_shapes(config: Config, loop: Loop) -> Any:
    """Shapes and types of the algorithm's state, leaves [members, ...]."""
    hps = hyper.fill(config.Algorithm.Hyper, config.hp, len(config.seeds))
    init = lambda seeds, hps: jax.vmap(loop.algo.init)(member_keys(seeds, Stream.INIT, 0), hps)
    return jax.eval_shape(init, np.asarray(config.seeds, np.int32), hps)
