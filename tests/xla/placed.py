"""Train a population on one device and on four, and print both: run by test_placement.py."""

import hashlib
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from thespis.algos import SAC
from thespis.engine import population
from thespis.engine.evaluation import Evaluator
from thespis.engine.host_driver import HostDriver
from thespis.engine.loop import DeviceDriver, Loop
from thespis.engine.population import inherit
from thespis.engine.rollout import FrozenPolicy
from thespis.envs import make
from thespis.nn.networks import Network
from thespis.tuning import PBT, hyper
from thespis.xla.placement import mesh_for

MEMBERS = 4
population.CHUNK = 60  # so that replays are copied in two parts, which overlap


def fingerprint(tree) -> str:
    leaves = [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]
    return hashlib.sha256(b"".join(leaves)).hexdigest()[:16]


def learned(x) -> str:
    return fingerprint((x.state, x.actors, x.world, x.replay, x.clock))


def train(name: str, devices: int, prioritized: bool) -> dict:
    env = make(name)
    given = {"prioritized_replay": prioritized, "normalize_observations": True}
    given |= {"head": "categorical", "order": "actor-first"} if prioritized else {}
    algo = SAC(env.spec, hidden=(16,), batch_size=16, critic_network=Network(norm="layer"), **given)
    loop = Loop(algo, env, envs=2, capacity=100, mesh=mesh_for(MEMBERS, devices))
    seeds, hps = jnp.arange(MEMBERS, dtype=jnp.int32), hyper.fill(SAC.Hyper, {}, MEMBERS)
    driver = (HostDriver if hasattr(env, "open") else DeviceDriver)(loop, seeds)
    x = driver.init(seeds, hps)
    prints = {"begun": fingerprint(x)}
    for length, mode, learn in ((20, "random", False), (30, "explore", True)):
        x = driver.run(x, hps, None, seeds, length, mode, learn)
    policies = FrozenPolicy(x.state, hps, jnp.full(MEMBERS, 100))
    returns, _ = Evaluator(loop, env, 2)(policies, seeds, x.clock.iteration)
    prints |= {"trained": learned(x), "evaluated": fingerprint(returns)}
    parents = jnp.array([0, 0, 2, 1])  # the third's parent is itself replaced
    source = np.asarray(x.replay.rows.obs)[:, parents]
    x = loop.place(jax.jit(inherit, static_argnums=2)(x, parents, PBT(replay="parent")))
    adopted = bool((np.asarray(x.replay.rows.obs) == source).all())
    prints |= {"copied": learned(x)}
    x = driver.run(x, hps, None, seeds, 5, "explore", True)
    driver.close()
    used = len(jax.tree.leaves(x.state)[0].sharding.device_set)
    metrics = np.asarray(x.metric_sums.total).tolist()
    return {
        "devices": used,
        "adopted": adopted,
        "prints": prints | {"after": learned(x)},
        "metrics": metrics,
    }


if __name__ == "__main__":
    env, replay = sys.argv[1:]
    print(json.dumps([train(env, devices, replay == "prioritized") for devices in (1, 4)]))
