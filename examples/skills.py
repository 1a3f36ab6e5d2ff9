"""Skills without rewards, and plans made of them: DADS on Brax's ant (about ten minutes).

Needs `pip install 'thespis[brax]'`. Leaves pictures of skills and plans in the folder of the run.
"""

import sys

import numpy as np

import thespis
from thespis.envs.brax import Brax
from thespis.show import skills as show
from thespis.skills.plan import Planner, pursue
from thespis.skills.score import judged
from thespis.skills.skilled import Skilled, rollout

ant = Brax("ant", limit=200)  # which offers its position as descriptor

run = thespis.train(
    "dads",
    env=ant,
    steps=int(sys.argv[1]) if len(sys.argv) > 1 else 200_000,
    envs=16,
    updates_per_step=0.25,
    hidden=(128, 128),
    learning_starts=5_000,
    eval_freq=50_000,
)

skilled = Skilled(run)
played = rollout(skilled, skilled.skills(50), episodes=1)
show.trajectories(played, run.path / "plots" / "skills.png", "DADS on Brax's ant")
for name, value in judged(skilled, played).items():
    print(f"{name:<24}{value:.3f}")

goals = 3.0 * np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)])
found, blind = (pursue(skilled, goals, Planner(), blind=b) for b in (False, True))
show.pursuit(found, run.path / "plots" / "plan.png", "Plans to four goals")
print(f"score {found.scores.mean():.3f}, of random skills {blind.scores.mean():.3f}")
