"""Several agents: a joint critic against independent learners: python examples/several_agents.py.

In `jax:meeting` two agents may go home (return 5) or into town, where meeting is worth 11 and
missing each other costs up to 50. An optional argument is the number of steps.
"""

import sys

import numpy as np

import thespis

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 12_000
common = {
    "steps": steps,
    "hidden": (64, 64),
    "envs": 8,
    "updates_per_step": 0.25,
    "learning_starts": steps // 6,
    "batch_size": 128,
}
for critic in ("joint", "own"):
    run = thespis.train("masac", env="jax:meeting", critic=critic, progress=False, **common)
    policy = run.policy()
    deciding = policy({"agents": np.zeros((2, 3), np.float32)})
    result = run.evaluate(episodes=10)
    goes = "into town" if deciding["agent_0"] >= 2 else "home"
    print(f"critic {critic:<6} return {result['mean_reward']:5.1f}; they go {goes}")
