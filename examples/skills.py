"""Skills without rewards on Brax's ant, and how they reach goals nobody trained them for.

Needs `pip install 'thespis[brax]'`. `python skills.py dads 300000` learns skills that can be
predicted and planned with, `metra` instead of `dads` skills that lead far apart. That takes ten
minutes to half an hour. Pictures of skills and of ways to goals are left in the folder of the run.
"""

import sys

import numpy as np

import thespis
from thespis.envs.brax import Brax
from thespis.report import skills as show
from thespis.runs.skilled import Skilled
from thespis.skills.planner import pursue
from thespis.skills.rollout import rollout
from thespis.skills.score import judged

objective = sys.argv[1] if len(sys.argv) > 1 else "dads"
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 300_000
ant = Brax("ant", limit=200)  # which offers its position as descriptor

run = thespis.train(
    "dads",
    env=ant,
    objective=objective,
    steps=steps,
    envs=16,
    updates_per_step=0.25,
    hidden=(128, 128),
    learning_starts=5_000,
    eval_freq=50_000,
)

skilled = Skilled(run)
played = rollout(skilled, skilled.skills(50), episodes=1)
show.trajectories(played, run.path / "plots" / "skills.png", f"{objective.upper()} on Brax's ant")
for name, value in judged(skilled, played).items():
    print(f"{name:<24}{value:.3f}")

# Four goals that are half as far away as skills lead.
reach = np.linalg.norm(played.end_points - played.descriptors[:, :, 0], axis=-1).mean()
goals = 0.5 * reach * np.array([(1, 0), (0, 1), (-1, 0), (0, -1)])
found, blind = (pursue(skilled, goals, blind=b) for b in (False, True))
show.pursuit(found, run.path / "plots" / "plan.png", "Ways to four goals")
print(f"score {found.scores.mean():.3f}, of random skills {blind.scores.mean():.3f}")
