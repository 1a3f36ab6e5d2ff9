"""Train, load, evaluate, and act in a plain loop: python examples/train_and_use.py [STEPS]."""

import sys

import gymnasium

import thespis

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000

run = thespis.train("sac", env="Pendulum-v1", steps=steps, seeds=[0, 1], hidden=(64, 64))

# Later, perhaps in another process: the folder is all that is needed.
run = thespis.load(run.path)
result = run.evaluate(episodes=10)
print(f"{run.path}: {result['mean_reward']:.1f} ± {result['std_reward']:.1f}")

# A policy takes an observation as the environment gives it, and answers in its units.
policy = run.policy(member="best", which="best")
env = gymnasium.make("Pendulum-v1")
obs, _ = env.reset(seed=0)
total, over = 0.0, False
while not over:
    obs, reward, terminated, truncated, _ = env.step(policy(obs))
    total, over = total + float(reward), terminated or truncated
print(f"one episode by hand: {total:.1f}")
