"""Hyper-parameters: declared once, checked with a word of help, drawn from their priors."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from thespis.algos import ALGORITHMS
from thespis.core import ThespisError
from thespis.tuning.hyper import (
    LogUniform,
    OneMinusLogUniform,
    Uniform,
    check,
    declared,
    fill,
    legal_range,
    parse,
    prior,
    sample,
)


class Hyper(eqx.Module):
    rate: float = prior(3e-4, LogUniform(1e-5, 1e-2), "learning rate", low=0)
    gamma: float = prior(0.99, OneMinusLogUniform(1e-3, 1e-1), "discount", low=0, high=1)
    entropy: float = prior(-1.0, Uniform(-2, 0), "wanted entropy")


def fails(values, *words, members=1):
    """It raises one line that has all these words."""
    with pytest.raises(ThespisError) as caught:
        check(Hyper, values, members)
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text, text


# --- declaring ------------------------------------------------------------------------------


def test_a_declaration_tells_all_that_was_said():
    known = declared(Hyper)
    assert list(known) == ["rate", "gamma", "entropy"]
    gamma = known["gamma"]
    assert (gamma.name, gamma.default, gamma.help) == ("gamma", 0.99, "discount")
    assert (gamma.low, gamma.high) == (0, 1)
    assert gamma.prior == OneMinusLogUniform(1e-3, 1e-1)
    assert (known["entropy"].low, known["entropy"].high) == (-np.inf, np.inf)


def test_a_hyper_is_a_pytree_of_its_values():
    assert jax.tree.leaves(Hyper()) == [3e-4, 0.99, -1.0]


@pytest.mark.parametrize("algorithm", ALGORITHMS.values())
def test_the_defaults_of_every_algorithm_are_legal_and_likely(algorithm):
    known = declared(algorithm.Hyper)
    check(algorithm.Hyper, {name: d.default for name, d in known.items()})
    for d in known.values():
        ends = sorted(np.ravel(d.prior.ends))
        at = d.prior.coordinate(jnp.float32(d.default))
        assert ends[0] - 1e-5 <= at <= ends[1] + 1e-5, d.name


# --- checking -------------------------------------------------------------------------------


def test_an_unknown_name_suggests_its_neighbour():
    fails({"gama": 0.9}, "'gama'", "did you mean gamma?")


def test_where_no_name_is_near_all_are_listed():
    fails({"xyzzy": 0.9}, "'xyzzy'", "rate, gamma, entropy")


@pytest.mark.parametrize("value", [1.5, -0.1, np.nextafter(1, 2), [0.9, 2.0]])
def test_a_number_out_of_range_is_refused(value):
    fails({"gamma": value}, "gamma", "between 0 and 1", members=2)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0, 1, "between 0 and 1"),
        (0, np.inf, "at least 0"),
        (-np.inf, 1, "at most 1"),
        (-np.inf, np.inf, "a finite number"),
    ],
)
def test_a_range_is_told_in_words(low, high, words):
    gamma = declared(Hyper)["gamma"]
    assert legal_range(dataclasses.replace(gamma, low=low, high=high)) == words


def test_the_message_has_the_range():
    fails({"rate": -1}, "hyper-parameter rate = -1 is out of range: give at least 0")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["gamma", "entropy"])
def test_what_is_not_finite_is_refused(name, value):
    fails({name: value}, name, f"{value:g}")


@pytest.mark.parametrize("length", [0, 2, 4])
def test_a_list_of_another_length_than_the_members_is_refused(length):
    fails({"gamma": [0.9] * length}, "gamma", f"{length} values", "3 members", members=3)


@pytest.mark.parametrize("value", ["fast", None, [[0.9]], ["0.9"]])
def test_what_is_no_number_is_refused(value):
    fails({"gamma": value}, "gamma", "number")


@pytest.mark.parametrize("value", [0, 1, 0.5, [0.1, 0.2], (0.1, 1), [0.5]])
def test_legal_numbers_are_accepted(value):
    check(Hyper, {"gamma": value}, 2)


@pytest.mark.parametrize("make", [np.float32, np.array, jnp.float32, np.int64])
def test_numbers_of_numpy_and_jax_are_numbers(make):
    assert fill(Hyper, {"gamma": make(1)}).gamma == 1


# --- filling --------------------------------------------------------------------------------


def test_a_number_is_everybodys_and_a_list_one_per_member():
    hps = fill(Hyper, {"rate": [1e-3, 2e-3, 3e-3], "entropy": -0.5}, 3)
    np.testing.assert_array_equal(hps.rate, np.float32([1e-3, 2e-3, 3e-3]))
    np.testing.assert_array_equal(hps.entropy, np.float32([-0.5] * 3))
    np.testing.assert_array_equal(hps.gamma, np.float32([0.99] * 3))


def test_filled_values_have_one_type_whatever_was_given():
    """Otherwise another way to write a number would compile another program."""
    for values in ({}, {"gamma": 1}, {"gamma": [0.5, 0.25]}, {"gamma": np.float64(0.5)}):
        for leaf in jax.tree.leaves(fill(Hyper, values, 2)):
            assert (leaf.shape, leaf.dtype, leaf.weak_type) == ((2,), jnp.float32, False)


def test_filling_checks():
    with pytest.raises(ThespisError, match="out of range"):
        fill(Hyper, {"gamma": 2})


# --- priors ---------------------------------------------------------------------------------

PRIORS = [Uniform(-2, 5), LogUniform(1e-5, 1e-2), OneMinusLogUniform(1e-3, 1e-1)]
LEGAL = {Uniform: (-2, 5), LogUniform: (1e-5, 1e-2), OneMinusLogUniform: (0.9, 0.999)}


@pytest.mark.parametrize("p", PRIORS)
def test_a_coordinate_leads_back_to_its_value(p):
    x = jnp.linspace(*LEGAL[type(p)], 1000)
    np.testing.assert_allclose(p.value(p.coordinate(x)), x, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("p", PRIORS)
def test_the_ends_of_a_coordinate_are_the_ends_of_the_prior(p):
    ends = sorted(np.ravel(p.value(jnp.asarray(p.ends, jnp.float32))))
    np.testing.assert_allclose(ends, LEGAL[type(p)], rtol=1e-5)


@pytest.mark.parametrize("p", PRIORS)
def test_shares_of_the_range_lie_between_its_limits(p):
    ends = p.at(jnp.array([0.0, 1.0]))
    np.testing.assert_allclose(np.sort(ends), LEGAL[type(p)], rtol=1e-6)
    np.testing.assert_allclose(p.limits, LEGAL[type(p)], rtol=1e-12)
    middle = p.coordinate(p.at(jnp.array(0.5)))
    np.testing.assert_allclose(middle, np.mean(p.ends), rtol=1e-4, atol=1e-5)


def test_values_move_by_factors_of_their_own_kind():
    """A rate is doubled, the distance of a discount from 1 is, and others move in their range."""
    by = jnp.log(jnp.float32(2))
    np.testing.assert_allclose(LogUniform(1e-5, 1e-2).move(jnp.array(1e-3), by), 2e-3, rtol=1e-5)
    moved = OneMinusLogUniform(1e-3, 1e-1).move(jnp.array(0.99), by)
    np.testing.assert_allclose(moved, 0.98, rtol=1e-5)
    np.testing.assert_allclose(Uniform(-1, 3).move(jnp.array(0.0), by), 2 * np.log(2), rtol=1e-5)


@pytest.mark.parametrize("p", PRIORS)
def test_what_would_leave_the_range_is_thrown_back(p):
    by = jnp.linspace(-50, 50, 1001)
    low, high = (np.float32(x) for x in LEGAL[type(p)])
    for start in (0.0, 0.3, 1.0):
        moved = p.move(jnp.full(1001, p.at(jnp.array(start))), by)
        assert moved.min() >= low
        assert moved.max() <= high
        assert len(np.unique(moved)) > 30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("uniform:-1:1", Uniform(-1, 1)),
        ("log:3e-5:3e-3", LogUniform(3e-5, 3e-3)),
        ("one-minus-log:1e-3:0.1", OneMinusLogUniform(1e-3, 0.1)),
    ],
)
def test_a_prior_can_be_written(text, expected):
    assert parse("x", text) == expected


@pytest.fixture(scope="module")
def drawn():
    return sample(Hyper, random.key(0), 20_000)


def test_a_sample_stays_in_its_prior(drawn):
    for x, low, high in (
        (drawn.rate, 1e-5, 1e-2),
        (drawn.gamma, 0.9, 0.999),
        (drawn.entropy, -2, 0),
    ):
        assert x.min() >= low - 1e-6 * abs(low)
        assert x.max() <= high + 1e-6 * abs(high)


@pytest.mark.parametrize(
    ("name", "coordinate"),
    [("rate", np.log), ("gamma", lambda x: np.log1p(-x)), ("entropy", lambda x: x)],
)
def test_a_sample_is_uniform_in_its_coordinate(drawn, name, coordinate):
    low, high = {"rate": (1e-5, 1e-2), "gamma": (0.999, 0.9), "entropy": (-2, 0)}[name]
    at = coordinate(np.asarray(getattr(drawn, name), np.float64))
    start, end = coordinate(low), coordinate(high)
    counts, _ = np.histogram((at - start) / (end - start), 10, (-0.001, 1.001))
    np.testing.assert_allclose(counts, 2000, rtol=0.1)


def test_hyper_parameters_are_drawn_independently(drawn):
    both = np.corrcoef([drawn.rate, drawn.gamma, drawn.entropy])
    assert np.abs(both - np.eye(3)).max() < 0.03


def test_some_may_be_drawn_from_other_priors_and_the_rest_stays():
    hps = sample(Hyper, random.key(0), 100, {"gamma": Uniform(0.1, 0.2)})
    assert hps.gamma.min() >= np.float32(0.1)
    assert hps.gamma.max() <= np.float32(0.2)
    np.testing.assert_array_equal(hps.rate, np.float32([3e-4] * 100))
    jax.tree.map(
        np.testing.assert_array_equal, sample(Hyper, random.key(0), 3, {}), fill(Hyper, {}, 3)
    )


def test_a_sample_is_fixed_by_its_key():
    a, b, c = (sample(Hyper, random.key(i), 4) for i in (1, 1, 2))
    jax.tree.map(np.testing.assert_array_equal, a, b)
    assert (a.rate != c.rate).all()
    assert len(np.unique(a.rate)) == 4
