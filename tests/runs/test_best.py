"""The best policy of every member is kept, and no other."""

import numpy as np
import pytest

from thespis.runs import checkpoint
from thespis.runs.best import Best, best_member
from thespis.runs.config import make
from thespis.runs.config_file import write

floats = np.float32


def policies(*numbers):
    return {"w": floats(numbers)[:, None] * np.ones((1, 3), np.float32)}


def best_of_two() -> Best:
    """Member 0 was better at step 100, member 1 at step 200."""
    best = Best.empty(policies(0, 0), {"gamma": floats([0, 0])})
    best = best.challenge(floats([5, 1]), 100, policies(1, 2), {"gamma": floats([0.1, 0.2])})
    return best.challenge(floats([4, 3]), 200, policies(3, 4), {"gamma": floats([0.3, 0.4])})


def test_every_member_keeps_its_own_best():
    best = best_of_two()
    assert best.reward.tolist() == [5, 3]
    assert best.step.tolist() == [100, 200]
    assert best.state["w"][:, 0].tolist() == [1, 4]
    np.testing.assert_allclose(best.hyper["gamma"], [0.1, 0.4])
    tie = best.challenge(floats([5, np.nan]), 300, policies(9, 9), best.hyper)
    assert tie.step.tolist() == [100, 200]  # the older one stays, and NaN is never better


def test_the_folder_holds_it_alone(tmp_path):
    folder = tmp_path / "best"
    Best.empty(policies(0, 0), {}).write(folder)
    assert checkpoint.latest(folder) == []  # nothing was evaluated yet
    best_of_two().write(folder)
    (kept,) = checkpoint.latest(folder)
    assert checkpoint.manifest(kept)["info"] == {"reward": [5, 3], "step": [100, 200]}
    later = best_of_two().challenge(floats([9, 9]), 300, policies(5, 5), {"gamma": floats([1, 1])})
    later.write(folder)
    assert [path.name for path in checkpoint.latest(folder)] == ["000000000300"]
    best_of_two().write(folder)  # as where a run goes on from before
    assert [path.name for path in checkpoint.latest(folder)] == ["000000000200"]


@pytest.fixture
def run(tmp_path):
    """A folder of two members whose last evaluations were at 200 and, after a checkpoint, 300."""
    write(tmp_path, make("sac", {"env": "jax:pendulum", "steps": 1000, "seeds": (0, 1)}), "")
    (tmp_path / "metrics.csv").write_text(
        "step,member,eval/mean_reward\n100,0,9\n100,1,1\n200,0,2\n200,1,3\n300,0,8\n300,1,4\n"
    )
    checkpoint.save(tmp_path / "checkpoints", 200, {"state": policies(0, 0)}, {})
    return tmp_path


def test_the_best_member_is_that_of_the_last_evaluation_or_of_all(run):
    assert best_member(run) == 1  # what came after the checkpoint was lost
    assert best_member(run, "best") == 0
    best_of_two().challenge(floats([4, 6]), 300, policies(0, 0), {"gamma": floats([0, 0])}).write(
        run / "best"
    )
    assert best_member(run, "best") == 1
    (run / "metrics.csv").unlink()
    assert best_member(run) == 0
