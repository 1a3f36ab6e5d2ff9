from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import thespis
from tests import small
from thespis import envs
from thespis.core import ThespisError
from thespis.report import repeats
from thespis.report.repeats import Episode

pytestmark = pytest.mark.usefixtures("kept")


def episode(anew, n=2):
    anew = np.array(anew, bool)
    return Episode(np.linspace(-1, 1, len(anew) * n).reshape(-1, n), anew, 12.5)


def test_runs_last_from_one_new_trajectory_to_the_next_or_the_end():
    one = episode([1, 0, 0, 1, 1, 0])
    assert one.runs == [3, 1, 2]
    assert one.repeat_rate == pytest.approx(3 / 5)
    assert episode([1]).runs == [1]
    assert episode([1]).repeat_rate == 0


@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_draws_actions_and_run_lengths(tmp_path, form):
    path = repeats.draw([episode([1, 0, 0, 1, 1, 0]), episode([1, 0])], tmp_path / f"a.{form}")
    assert path.stat().st_size > 1000
    if form == "png":
        with Image.open(path) as image:
            assert image.size[0] > 1000
    with pytest.raises(ThespisError, match=r"\.png, \.svg or \.pdf"):
        repeats.draw([episode([1, 0])], tmp_path / "a.txt")


def test_plays_a_run_and_tells_where_it_acted_anew(tmp_path):
    given = small.arguments(out=tmp_path, steps=200, max_repeat_steps=4, updates_per_step=0)
    trained = thespis.train("taac", **given)
    there = thespis.load(trained.path, eval_env="Pendulum-v1")  # Gymnasium's own form
    for run in (trained, there):
        played = repeats.play(run, episodes=2)
        assert [len(e.actions) for e in played] == [200, 200]
        assert played[0].total != played[1].total  # start states differ
        for one in played:
            assert one.new_action[0]
            assert max(one.runs) <= 4
            moved = (np.diff(one.actions[:, 0]) != 0) & ~one.new_action[1:]
            assert not moved.any()  # it repeats what it did
    assert repeats.plot(trained, episodes=1) == trained.path / "plots" / "repeats.png"
    assert (trained.path / "plots" / "repeats.png").exists()


def test_an_algorithm_that_never_repeats_is_refused():
    class Policy:
        memory = None

        def reset(self, seed):
            pass

        def act(self, obs):
            return np.zeros((1, 1))

    run = SimpleNamespace(
        policy=lambda member, which: Policy(),
        parts=(None, envs.make("jax:pendulum")),
        config=SimpleNamespace(algo="sac"),
    )
    with pytest.raises(ThespisError, match="sac never repeats actions"):
        repeats.plot(run)
