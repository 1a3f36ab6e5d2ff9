"""Trajectories of TAAC-L and TAAC-Q go on as NumPy says, within their bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algos import reference, taac_reference
from tests.algos.test_taac import KINDS, VARIANTS, make, named
from thespis.algos import ALGORITHMS, TAACL, TAACQ


@pytest.mark.parametrize("algo", VARIANTS, ids=named)
def test_trajectories_equal_numpys(algo):
    rng = np.random.default_rng(0)
    last, x = (rng.uniform(-1, 1, (50, n)) for n in (2 * algo.parts, 2))
    follow = reference.quick(lambda x, last: (algo.advance(last), algo.new(x, last)))
    advanced, new = map(np.asarray, follow(np.float32(x), np.float32(last)))
    for got, wanted in (
        (advanced, taac_reference.advance(algo, last)),
        (new, taac_reference.new(algo, x, last)),
    ):
        np.testing.assert_allclose(got, wanted, atol=1e-6)
        assert abs(got).max() <= 1


def test_the_trajectories_of_each_kind_by_hand():
    step = lambda algo, *tau: algo.advance(jnp.float32(tau)).tolist()
    begin = lambda algo, x, *tau: algo.new(jnp.float32([x]), jnp.float32(tau)).tolist()
    one = {"action": 1}
    assert step(make(**one), 0.5) == [0.5]
    assert begin(make(**one), 0.25, 0.5) == [0.25]

    line, slope = make(TAACL, **one), make(TAACL, inverse_mode=False, **one)
    assert step(line, 0.5, 0.125) == [0.75, 0.125]
    assert step(line, 0.5, 0.5) == [1, 0.5]  # bounded, and the slope is kept
    assert begin(line, 0.5, 0.25, 0.75) == [0.5, 0.125]
    assert begin(slope, 0.125, 0.25, 0.75) == [0.5, 0.125]

    curve, bend = make(TAACQ, **one), make(TAACQ, inverse_mode=False, **one)
    assert step(curve, 0, 0.125, -0.25) == [-0.75, -0.375, -0.25]
    assert begin(curve, 0.5, 0, 0.25, 0.75) == [0.5, 0.25, 0.125]
    assert begin(bend, 0.125, 0.25, 0.75, -0.5) == [0.75, 0.25, 0.125]


def test_names():
    assert {name: ALGORITHMS[name] for name in KINDS} == KINDS
    assert TAACL(reference.spec()).inverse_mode
    assert TAACQ(reference.spec()).inverse_mode


@pytest.mark.parametrize("Algorithm", [TAACL, TAACQ])
def test_defect_50_a_saturated_proposal_still_has_a_gradient(Algorithm):
    algo = make(Algorithm, action=1, inverse_mode=False)
    last = np.float32([0.9] + [0.0] * (algo.parts - 1))
    height = lambda x: algo.new(x, jnp.asarray(last))[0]
    value, slope = reference.quick(jax.value_and_grad(height))(np.float32([0.8]))
    assert value == 1.0
    assert np.asarray(slope)[0] >= 2
