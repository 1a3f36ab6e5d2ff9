"""An algorithm as pure functions, under jit and vmap: python examples/functional.py [UPDATES].

Four members learn the value of one random batch; they differ in their learning rate. Nothing
here trains, logs or saves: that is the part of `thespis.train`.
"""

import sys

import jax
import jax.numpy as jnp
from jax import random

from thespis import SAC, Box, Spec, Transition
from thespis.tuning import hyper

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
members, batch = 4, 64

spec = Spec(obs=jax.ShapeDtypeStruct((3,), jnp.float32), action=Box((-2.0,), (2.0,), (1,)))
algo = SAC(spec, hidden=(32, 32))  # static choices: another value compiles another program
hps = hyper.fill(SAC.Hyper, {"critic_lr": [1e-4, 3e-4, 1e-3, 3e-3], "gamma": 0.0}, members)
states = jax.vmap(algo.init)(random.split(random.key(0), members), hps)

k_obs, k_action, k_reward = random.split(random.key(1), 3)
obs = random.normal(k_obs, (batch, 3))
fixed = Transition(
    obs=obs,
    action=random.uniform(k_action, (batch, 1), minval=-1, maxval=1),
    reward=random.normal(k_reward, (batch,)),
    next_obs=obs,
    terminated=jnp.zeros(batch),
    truncated=jnp.zeros(batch),
    steps=jnp.ones(batch),
    valid=jnp.ones(batch),
    weight=jnp.ones(batch),
)


@jax.jit
def update(states, hps, key, step):
    one = lambda state, hp, key: algo.update(state, hp, fixed, key, step)
    return jax.vmap(one)(states, hps, random.split(key, members))


for step in range(updates):
    key = random.fold_in(random.key(2), step)
    states, metrics, td_error = update(states, hps, key, jnp.int32(step))

for rate, loss in zip(hps.critic_lr, metrics["critic_loss"], strict=True):
    print(f"critic_lr {rate:.0e}: critic loss {loss:.3f} after {updates} updates")

act = jax.jit(algo.act, static_argnames="mode")
first = jax.tree.map(lambda x: x[0], (states, hps))
action, _, _ = act(*first, None, obs, random.key(3), jnp.int32(0), mode="greedy")
print(f"greedy actions of the first member: shape {action.shape}, all within [-1, 1]")
