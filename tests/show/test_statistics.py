import numpy as np
import pytest

from thespis.core import ThespisError
from thespis.show.statistics import bootstrap, iqm, mean, on_grid


def test_the_iqm_is_the_mean_of_the_middle_half():
    assert iqm(np.arange(1, 9)) == 4.5  # of 3, 4, 5, 6
    assert iqm([100.0, 2.0, 3.0, -50.0]) == 2.5


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 4.0], 2.5),
        ([0.0, 1.0, 5.0], (0.25 * 0 + 1 + 0.25 * 5) / 1.5),
        ([0.0, 1.0, 2.0, 6.0, 90.0], (0.75 * 1 + 2 + 0.75 * 6) / 2.5),
        ([-9.0, 0.0, 1.0, 2.0, 6.0, 90.0], (0.5 * 0 + 1 + 2 + 0.5 * 6) / 3),
    ],
)
def test_the_iqm_counts_samples_that_straddle_a_quartile_in_part(x, expected):
    assert iqm(x) == pytest.approx(expected)


def test_the_iqm_is_taken_at_every_point():
    x = np.random.default_rng(0).normal(size=(7, 3))
    np.testing.assert_allclose(iqm(x), [iqm(x[:, i]) for i in range(3)])


def test_the_bootstrap_interval_holds_the_mean_and_shrinks_with_more_seeds():
    draw = np.random.default_rng(0).normal
    few, many = draw(size=(4, 20)), draw(size=(64, 20))
    widths = []
    for samples in (few, many):
        low, high = bootstrap(samples, mean)
        assert np.all(low <= mean(samples))
        assert np.all(mean(samples) <= high)
        widths.append((high - low).mean())
    # The standard error of 64 samples is a quarter of that of 4; of a normal, 2 x 1.96 / 8.
    assert widths[1] < widths[0] / 2
    assert widths[1] == pytest.approx(2 * 1.96 / 8, rel=0.15)


def test_the_bootstrap_covers_the_truth_about_as_often_as_it_says():
    samples = np.random.default_rng(1).normal(size=(30, 400))  # 400 experiments of 30 seeds
    low, high = bootstrap(samples, mean, level=0.9)
    assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(0.9, abs=0.06)


def test_the_bootstrap_is_the_same_every_time():
    samples = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(bootstrap(samples, iqm), bootstrap(samples, iqm))


def test_one_seed_has_no_interval():
    assert bootstrap(np.ones((1, 3)), iqm) is None


def test_runs_evaluated_at_the_same_steps_are_left_as_they_are():
    steps = np.array([0.0, 10.0, 20.0])
    grid, values = on_grid([steps, steps], [steps + 1, steps * 2])
    np.testing.assert_array_equal(grid, steps)
    np.testing.assert_array_equal(values, [steps + 1, steps * 2])


def test_the_grid_ends_with_the_shortest_run_and_extrapolates_nothing():
    steps = [np.array([0.0, 10.0, 20.0, 30.0]), np.array([5.0, 15.0, 25.0])]
    grid, values = on_grid(steps, [steps[0] * 2, steps[1] * -1])
    np.testing.assert_array_equal(grid, [5, 10, 15, 20, 25])
    np.testing.assert_allclose(values, [grid * 2, -grid])


def test_runs_without_common_steps_are_an_error():
    a, b = np.array([0.0, 10.0]), np.array([20.0, 30.0])
    with pytest.raises(ThespisError, match="starts at 20, another ends at 10"):
        on_grid([a, b], [a, b])
