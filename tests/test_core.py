"""The vocabulary: what rows and specs mean, and the small functions everybody uses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core import Box, Discrete, Row, Spec, Step, ThespisError, mean, polyak, where
from thespis.errors import did_you_mean, or_all, shown


def spec(width=3, action=None):
    shapes = {
        "image": jax.ShapeDtypeStruct((4, 4), jnp.uint8),
        "vector": jax.ShapeDtypeStruct((width,), jnp.float32),
    }
    return Spec(shapes, action or Box((-1.0,) * 6, (1.0,) * 6, (2, 3)))


# --- specs ----------------------------------------------------------------------------------


def test_equal_specs_are_one_key_of_a_cache():
    assert spec() == spec()
    assert len({spec(), spec()}) == 1


@pytest.mark.parametrize("other", [spec(width=4), spec(action=Discrete(2))])
def test_specs_differ_by_shape_and_by_action(other):
    assert spec() != other
    assert hash(spec()) != hash(other)


def test_the_size_of_a_box_counts_its_numbers():
    assert spec().action.size == 6
    assert Box((0.0,), (1.0,), ()).size == 1


# --- what flows -----------------------------------------------------------------------------


@pytest.mark.parametrize("library", [np, jnp])
def test_an_episode_is_over_by_termination_or_by_truncation(library):
    zeros, array = library.zeros(3), library.array
    step = Step(zeros, zeros, array([False, True, False]), array([False, False, True]))
    np.testing.assert_array_equal(step.final, [False, True, True])


def test_the_row_of_a_final_observation_is_final():
    step = Step(jnp.zeros(2), jnp.zeros(2), jnp.array([False, True]), jnp.array([False, False]))
    row = Row(*step, action=jnp.zeros(2))
    np.testing.assert_array_equal(row.final, [False, True])


# --- functions ------------------------------------------------------------------------------


def test_mean_leaves_invalid_entries_out():
    x, valid = jnp.array([[1.0, 2, 30], [4, 5, 60]]), jnp.array([[1.0, 1, 0]])
    np.testing.assert_array_equal(mean(x, valid), [1.5, 4.5])


def test_mean_of_nothing_is_zero():
    assert mean(jnp.array([7.0, 8]), jnp.zeros(2)) == 0


def test_mean_has_no_gradient_through_invalid_entries():
    gradient = jax.grad(lambda x: mean(x**2, jnp.array([1.0, 0, 1])))(jnp.array([1.0, 2, 3]))
    np.testing.assert_array_equal(gradient, [1, 0, 3])


def test_polyak_moves_the_target_by_tau():
    target, online = {"w": jnp.array([0.0, 4.0])}, {"w": jnp.array([1.0, 0.0])}
    np.testing.assert_allclose(polyak(target, online, 0.25)["w"], [0.25, 3.0])


@pytest.mark.parametrize(("tau", "expected"), [(0.0, 0.1), (1.0, 0.7)])
def test_polyak_is_exact_at_its_ends(tau, expected):
    moved = polyak(jnp.float32(0.1), jnp.float32(0.7), tau)
    np.testing.assert_allclose(moved, np.float32(expected), rtol=1e-7)


def test_where_chooses_whole_rows_of_any_shape():
    mask = jnp.array([True, False])
    a = {"image": jnp.ones((2, 2, 2), jnp.uint8), "number": jnp.array([1.0, 2.0]), "none": None}
    b = jax.tree.map(jnp.zeros_like, a)
    chosen = where(mask, a, b)
    np.testing.assert_array_equal(chosen["image"], [np.ones((2, 2)), np.zeros((2, 2))])
    np.testing.assert_array_equal(chosen["number"], [1, 0])
    assert chosen["image"].dtype == jnp.uint8


def test_where_takes_masks_of_several_axes():
    mask = jnp.array([[True, False, True], [False, False, True]])
    chosen = where(mask, jnp.ones((2, 3, 4)), jnp.zeros((2, 3, 4)))
    np.testing.assert_array_equal(chosen[..., 0], mask)
    np.testing.assert_array_equal(chosen[..., 3], mask)


# --- errors ---------------------------------------------------------------------------------


def test_an_error_is_an_ordinary_exception():
    with pytest.raises(Exception, match="what to do") as caught:
        raise ThespisError("what, where, what to do")
    assert isinstance(caught.value, ThespisError)


def test_a_near_name_is_suggested_whatever_its_case():
    assert did_you_mean("GAMA", ["gamma", "tau"]) == "; did you mean gamma?"
    assert did_you_mean("xyzzy", ["gamma", "tau"]) == ""


def test_where_no_name_is_near_all_are_listed():
    assert or_all("xyzzy", ["gamma", "tau"]) == "; there is gamma, tau"
    assert or_all("xyzzy", []) == "; there is none"


def test_what_was_given_is_shown_without_its_address():
    """A message is the same whenever the mistake is, and has nothing that nobody can use."""
    assert shown(object()) == "<object object>"
    assert shown([iter([])]) == "[<list_iterator object>]"
    assert shown("<object at 0x7f>") == "<object at 0x7f>"  # what somebody wrote stays
    assert shown("a\n b") == "a b"
    assert shown("x" * 200) == "x" * 100 + " ..."
