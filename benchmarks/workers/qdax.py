"""QDax: its SAC, TD3 and DADS baselines, updates scanned under `jit` as in its training loop.

A population is `vmap` of that, each member with its replay, as in its `get_train_fn`.
"""

from __future__ import annotations

import jax
from jax import random
from qdax.baselines.dads import DADS, DadsConfig
from qdax.baselines.sac import SAC, SacConfig
from qdax.baselines.sac_pbt import PBTSAC, PBTSacConfig
from qdax.baselines.td3 import TD3, TD3Config
from qdax.core.neuroevolution.buffers.buffer import QDTransition, ReplayBuffer, Transition

from workers.common import (
    ACTION,
    BATCH,
    DESCRIPTOR,
    MEMBER_ROWS,
    OBS,
    SKILLS,
    arguments,
    at_once,
    measure,
    peak,
    report,
)


def random_replay(rows: int, seed=0, block=1_000) -> ReplayBuffer:
    """The same rows again and again, lest making them takes more memory than holding them."""
    k_obs, k_next, k_reward, k_action = random.split(random.key(seed), 4)
    no = jax.numpy.zeros(block)
    rows_ = Transition(
        obs=random.normal(k_obs, (block, OBS)),
        next_obs=random.normal(k_next, (block, OBS)),
        rewards=random.normal(k_reward, (block,)),
        dones=no,
        truncations=no,
        actions=jax.numpy.tanh(random.normal(k_action, (block, ACTION))),
    )
    rows_ = jax.tree.map(lambda x: jax.numpy.tile(x, (rows // block, *[1] * (x.ndim - 1))), rows_)
    return ReplayBuffer.init(rows, Transition.init_dummy(OBS, ACTION)).insert(rows_)


def skilled_replay(rows: int) -> ReplayBuffer:
    """Observations end with a one-hot skill, the same before and after a step."""
    k_obs, k_next, k_reward, k_action, k_skill = random.split(random.key(0), 5)
    skill = jax.nn.one_hot(random.randint(k_skill, (rows,), 0, SKILLS), SKILLS)
    obs, after = (random.normal(k, (rows, OBS)) for k in (k_obs, k_next))
    beside = lambda x: jax.numpy.concatenate([x, skill], -1)
    no = jax.numpy.zeros(rows)
    rows_ = QDTransition(
        obs=beside(obs),
        next_obs=beside(after),
        rewards=random.normal(k_reward, (rows,)),
        dones=no,
        truncations=no,
        actions=jax.numpy.tanh(random.normal(k_action, (rows, ACTION))),
        state_desc=obs[:, :DESCRIPTOR],
        next_state_desc=after[:, :DESCRIPTOR],
    )
    dummy = QDTransition.init_dummy(OBS + SKILLS, ACTION, DESCRIPTOR)
    return ReplayBuffer.init(rows, dummy).insert(rows_)


def updates(args, at_once: int = 50) -> None:
    sizes = {
        "critic_hidden_layer_size": (args.hidden, args.hidden),
        "policy_hidden_layer_size": (args.hidden, args.hidden),
    }
    start, replay = (ACTION, OBS), random_replay
    if args.algo == "dads":
        config = DadsConfig(batch_size=BATCH, episode_length=1000, num_skills=SKILLS, **sizes)
        algo, start = DADS(config, ACTION, DESCRIPTOR), (ACTION, OBS, DESCRIPTOR)
        replay = skilled_replay
    elif args.algo == "sac":
        algo = SAC(SacConfig(batch_size=BATCH, episode_length=1000, **sizes), ACTION)
    else:
        algo = TD3(TD3Config(batch_size=BATCH, **sizes), ACTION)

    @jax.jit
    def many(state, replay):
        def one(carry, _):
            state, replay, metrics = algo.update(*carry)
            return (state, replay), metrics

        return jax.lax.scan(one, (state, replay), None, length=at_once)

    carry = algo.init(random.PRNGKey(0), *start), replay(5_000)

    def run() -> int:
        nonlocal carry
        carry, metrics = many(*carry)
        jax.block_until_ready((carry, metrics))
        return at_once

    report("updates", measure(args.seconds, run))


def population(args) -> None:
    sizes = {
        "critic_hidden_layer_size": (args.hidden, args.hidden),
        "policy_hidden_layer_size": (args.hidden, args.hidden),
    }
    algo = PBTSAC(PBTSacConfig(batch_size=BATCH, episode_length=1000, **sizes), ACTION)
    n, members = at_once(args.members), jax.numpy.arange(args.members)

    @jax.jit
    @jax.vmap
    def begin(seed):
        state = algo.init(random.PRNGKey(seed), ACTION, OBS)
        return state, random_replay(MEMBER_ROWS, seed)

    @jax.jit
    @jax.vmap
    def many(state, replay):
        def one(carry, _):
            state, replay, metrics = algo.update(*carry)
            return (state, replay), metrics

        return jax.lax.scan(one, (state, replay), None, length=n)

    carry = begin(members)

    def run() -> int:
        nonlocal carry
        carry, metrics = many(*carry)
        jax.block_until_ready((carry, metrics))
        return n * args.members

    report("updates", measure(args.seconds, run), peak=peak())


if __name__ == "__main__":
    args = arguments()
    {"updates": updates, "population": population}[args.work](args)
