import numpy as np
import pytest

from thespis.core import ThespisError
from thespis.report.statistics import (
    bootstrap,
    improvement,
    iqm,
    mean,
    mean_of_means,
    median_of_means,
    on_grid,
    optimality_gap,
    pooled_iqm,
    profile,
    stratified,
)


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


# --- over several environments --------------------------------------------------------------


def some_scores(seed=0, seeds=(5, 4, 6)):
    rng = np.random.default_rng(seed)
    return [rng.normal(i, 1, n) for i, n in enumerate(seeds)]


def test_aggregates_equal_what_is_computed_by_hand():
    scores = [np.array([0.0, 1.0, 2.0, 5.0]), np.array([0.5, 0.5, 1.5, 1.5])]
    # Sorted: 0 .5 .5 | 1 1.5 1.5 2 5, of which the middle four are .5 1 1.5 1.5.
    assert pooled_iqm(scores) == pytest.approx((0.5 + 1 + 1.5 + 1.5) / 4)
    assert mean_of_means(scores) == pytest.approx((2.0 + 1.0) / 2)
    assert median_of_means([*scores, np.array([9.0])]) == 2.0
    assert optimality_gap(scores) == pytest.approx((1 / 4 + (0.5 + 0.5) / 4) / 2)
    np.testing.assert_allclose(profile(scores, np.array([-1, 0.5, 1.0, 9])), [1, 0.625, 0.5, 0])


def test_the_probability_of_improvement_counts_pairs_and_halves_draws():
    ours, theirs = [np.array([1.0, 2.0]), np.array([3.0])], [np.array([1.0, 0.0]), np.array([5.0])]
    # Of the first environment 1 > 0, 2 > 1 and 2 > 0 are won and 1 = 1 is a draw.
    assert improvement(ours, theirs) == pytest.approx((3.5 / 4 + 0) / 2)
    x, y = some_scores(1), some_scores(2)
    assert improvement(x, y) + improvement(y, x) == pytest.approx(1)
    assert improvement(x, x) == pytest.approx(0.5)


def test_one_environment_is_the_plain_case():
    x = some_scores()[0]
    assert pooled_iqm([x]) == pytest.approx(iqm(x))
    low, high = stratified([[x]], pooled_iqm, draws=4000)
    plain = bootstrap(x[:, None], iqm, draws=4000)
    np.testing.assert_allclose([low, high], [plain[0][0], plain[1][0]], atol=0.1)


def test_seeds_are_drawn_within_their_environment():
    """With equal scores in each environment nothing is left to chance."""
    scores = [np.full(5, 1.0), np.full(3, 7.0)]
    np.testing.assert_array_equal(stratified([scores], mean_of_means), [4.0, 4.0])
    # Drawn from all of them together, the number of sevens would vary.


def test_stratified_intervals_equal_a_loop_over_draws():
    scores = [np.arange(6.0).reshape(3, 2), np.arange(8.0).reshape(4, 2) ** 2]
    rng = np.random.default_rng(0)
    rows = [rng.integers(len(x), size=(len(x), 50)) for x in scores]
    draws = [mean_of_means([x[r[:, i]] for x, r in zip(scores, rows)]) for i in range(50)]
    expected = np.quantile(draws, [0.05, 0.95], axis=0)
    got = stratified([scores], mean_of_means, draws=50, level=0.9)
    np.testing.assert_allclose(got, expected)


def test_large_samples_are_drawn_in_parts():
    scores = [np.random.default_rng(0).normal(size=(10, 20_000))]
    low, high = stratified([scores], pooled_iqm, draws=20)
    assert low.shape == high.shape == (20_000,)


def test_stratified_intervals_cover_the_truth_about_as_often_as_they_say():
    covered = 0
    for trial in range(100):
        rng = np.random.default_rng(trial)
        scores = [rng.normal(mean, 1, 10) for mean in (0.0, 1.0, 2.0)]
        low, high = stratified([scores], mean_of_means, draws=300)
        covered += low <= 1.0 <= high
    assert 85 <= covered <= 99


def test_one_seed_somewhere_has_no_interval():
    assert stratified([[np.ones(5), np.ones(1)]], mean_of_means) is None
