import json

import numpy as np
import pytest
from PIL import Image

from thespis.errors import ThespisError
from thespis.report import statistics
from thespis.report.plots import Curve
from thespis.report.scores import KINDS, counted, table


def curves(labels=("SAC", "TD3"), envs=("a", "b", "c"), seeds=4, points=8):
    """The later a label, the better by 0.1; environment i has scores of 10^i."""
    rng = np.random.default_rng(0)
    steps = np.linspace(1000, 8000, points)
    rise = lambda better: 1 - np.exp(-steps / 3000) + better + rng.normal(0, 0.02, points)
    return [
        Curve(label, [(steps, 10.0**i * rise(0.1 * j)) for _ in range(seeds)], env)
        for j, label in enumerate(labels)
        for i, env in enumerate(envs)
    ]


def test_one_environment_keeps_its_own_scores():
    found = table(curves(envs=("a",)))
    assert not found.normalised
    assert found.meaning == "evaluation return"
    (final,) = found.final("SAC")
    np.testing.assert_allclose(final, [values[-1] for _, values in curves(envs=("a",))[0].runs])


def test_several_are_normalised_between_the_first_and_the_best_evaluation():
    given = curves()
    found = table(given)
    assert found.normalised
    assert "0: mean first evaluation, 1: best" in found.meaning
    for env in "abc":
        here = [values for curve in given if curve.env == env for _, values in curve.runs]
        low, high = np.mean([x[0] for x in here]), np.max(here)
        got = found.curves["TD3"][env][1]
        np.testing.assert_allclose(got, (np.stack(here[4:]) - low) / (high - low))
        everything = np.concatenate([found.curves[label][env][1] for label in found.labels])
        assert everything.max() == pytest.approx(1)
        assert everything[:, 0].mean() == pytest.approx(0, abs=1e-9)


def test_or_between_scores_that_are_given(tmp_path):
    ends = {"a": [0, 2], "b": [10, 20], "c": [0, 100], "z": [0, 1]}
    (tmp_path / "scores.json").write_text(json.dumps(ends))
    for given in (ends, tmp_path / "scores.json"):
        found = table(curves(), normalise=given)
        assert found.meaning.endswith("(0 and 1 as given)")
        raw = table(curves(), normalise="none").final("SAC")
        np.testing.assert_allclose(found.final("SAC")[1], (raw[1] - 10) / 10)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": [0, 1]}, "no scores to normalise b by"),
        (dict.fromkeys("abc", (0, 1, 2)), "score of 0, score of 1"),
        (dict.fromkeys("abc", "x"), "score of 0, score of 1"),
        (dict.fromkeys("abc", (1, 1)), "are the same"),
    ],
)
def test_scores_that_make_no_sense_are_refused(given, message):
    with pytest.raises(ThespisError, match=message):
        table(curves(), normalise=given)


def test_algorithms_are_compared_at_the_same_step_on_the_same_environments():
    short = Curve("TD3", [(np.array([1000.0, 4000.0]), np.array([0.0, 5.0]))] * 2, "a")
    found = table([curves(envs=("a",))[0], short])
    for label in found.labels:
        assert found.curves[label]["a"][0][-1] == 4000
    with pytest.raises(ThespisError, match="TD3 has no run on b"):
        table([*curves()[:3], short])
    late = Curve("TD3", [(np.array([9000.0, 9500.0]), np.array([0.0, 5.0]))] * 2, "a")
    with pytest.raises(ThespisError, match="no steps in common on a"):
        table([curves(envs=("a",))[0], late])


def test_efficiency_is_the_iqm_of_all_runs_at_every_step():
    found = table(curves(points=2))
    grid, values = found.over_time("SAC", points=3)
    np.testing.assert_array_equal(grid, [1000, 4500, 8000])
    ends = [np.concatenate([x[:, i] for x in values]) for i in (0, 2)]
    middle = statistics.pooled_iqm(values)[1]
    assert middle == pytest.approx(statistics.iqm((ends[0] + ends[1]) / 2))


ONE = {"seeds": 1, "envs": ("a",), "points": 1}
OTHERS = [kind for kind in KINDS if kind != "efficiency"]


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("kind", "given"),
    [
        *((kind, {}) for kind in KINDS),
        ("efficiency", ONE),  # along the points
        *(pytest.param(kind, ONE, marks=pytest.mark.slow) for kind in OTHERS),
    ],
)
def test_every_kind_is_drawn(kind, given, tmp_path):
    file = KINDS[kind](table(curves(**given)), tmp_path / "plot.png")
    with Image.open(file) as image:
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    assert (pixels == 255).all(-1).mean() > 0.3
    assert len(np.unique(pixels, axis=0)) > 20


@pytest.mark.parametrize("form", ["svg", "pdf"])
def test_the_same_scores_give_the_same_file(form, tmp_path):
    one, two = (KINDS["profile"](table(curves()), tmp_path / f"{i}.{form}") for i in "ab")
    assert one.read_bytes() == two.read_bytes()


def test_one_algorithm_improves_on_nothing(tmp_path):
    with pytest.raises(ThespisError, match="two or more"):
        KINDS["improvement"](table(curves(labels=("SAC",))), tmp_path / "plot.png")


def test_what_is_counted_is_said():
    intervals = ", 95 % bootstrap intervals"
    assert counted(table(curves())) == f"4 seeds on 3 environments{intervals}"
    assert counted(table(curves(envs=("a",), seeds=1))) == "1 seed on a"
    mixed = [curves()[0], Curve("TD3", curves()[3].runs[:2], "a")]
    assert counted(table(mixed)) == f"2–4 seeds on a{intervals}"
