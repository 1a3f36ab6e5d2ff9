"""A plot of one's own: what the policy does in every state of the pendulum, while it learns.

    python examples/custom_plot.py [STEPS]

The newest picture and the distribution of torques are on the report page of the run, all of them in
TensorBoard and on trackers.
"""

import sys

import numpy as np
from matplotlib.figure import Figure

import thespis


class PolicyMap(thespis.Callback):
    """Draws the torque over angle and velocity at every evaluation."""

    def on_evaluation(self, training):
        angle, velocity = np.meshgrid(np.linspace(-np.pi, np.pi, 61), np.linspace(-8, 8, 41))
        obs = np.stack([np.cos(angle), np.sin(angle), velocity], -1).reshape(-1, 3)
        torque = training.policy()(obs.astype(np.float32)).reshape(angle.shape)
        figure = Figure(figsize=(5, 3.6), layout="constrained")
        axes = figure.subplots()
        colours = axes.pcolormesh(angle, velocity, torque, cmap="RdBu", vmin=-2, vmax=2)
        axes.set(xlabel="angle from upright", ylabel="angular velocity")
        axes.set_title(f"torque after {training.step:,} steps")
        figure.colorbar(colours)
        training.log_image("policy/torque", figure)
        training.log_histogram("policy/torques", torque)
        training.log("policy/mean_torque", np.abs(torque).mean())


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    run = thespis.train(
        "sac", env="jax:pendulum", steps=steps, hidden=(64, 64), callbacks=[PolicyMap]
    )
    print(run.path / "report.html")
