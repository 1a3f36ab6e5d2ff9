"""Record an expert and imitate it without a reward: python examples/imitate.py [STEPS]."""

import sys

import thespis

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
small = {"env": "jax:pendulum", "steps": steps, "hidden": (64, 64)}

expert = thespis.train("sac", **small)
episodes = expert.record(episodes=20)  # or on the command line: thespis demos RUN -o demos.npz
print(f"the expert's mean reward: {sum(e.reward.sum() for e in episodes) / len(episodes):.1f}")

# `demos` may also be a file, a Minari dataset, or the expert itself, which then plays on.
run = thespis.train("sqil", demos=episodes, **small)

# The best policy is the one most similar to demonstrations that were held out.
for which in ("last", "best"):
    print(f"{which} imitator: {run.evaluate(episodes=20, which=which)['mean_reward']:.1f}")
