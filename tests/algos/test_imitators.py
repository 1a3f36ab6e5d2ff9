"""The objectives of SQIL; what whole updates make of them is in test_sqil.py."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import random

from tests.algos.test_sqil import batch_of, kinds, make, midway
from thespis.algos import SQIL
from thespis.algos.imitators import bounded_value, contrastive_loss, largest_return
from thespis.nn.networks import Network

HP = eqx.tree_at(
    lambda hp: (hp.gamma, hp.reward_scale), SQIL.Hyper(), (jnp.float32(0.75), jnp.float32(2.0))
)


def test_only_values_of_ls_iq_stay_within_the_returns_of_rewards_of_one():
    """Those of a reward of 1 in every step are 1 / (1 - 0.75), here scaled by 2."""
    after, bonus = jnp.array([[-9.0], [1.0], [7.0]]), jnp.array([0.0, 0.5, 3.0])
    assert float(largest_return(HP)) == 4
    value, rest = bounded_value("ls-iq", HP, after, bonus)
    np.testing.assert_array_equal(value, [[-8], [1.5], [8]])
    assert rest is None
    for objective in ("sqil", "iq"):
        value, rest = bounded_value(objective, HP, after, bonus)
        assert value is after
        assert rest is bonus


def test_iq_learn_contrasts_all_states_with_what_was_demonstrated_in_the_second_half():
    value, q = jnp.array([[1.0, 2.0, 3.0, 4.0]]), jnp.array([[50.0, 60.0, 7.0, 9.0]])
    valid = jnp.array([1.0, 0.0, 1.0, 1.0])
    expected = 2 * ((1 + 3 + 4) / 3 - (7 + 9) / 2)
    np.testing.assert_allclose(contrastive_loss(HP, value, q, valid), expected, rtol=1e-6)


@kinds
def test_critics_of_iq_learn_with_dropout(kind, monkeypatch):
    """The same key draws the same actions, so values differ by the units that are left out."""
    both = lambda hp, value, q, valid: jnp.stack([value, q])
    monkeypatch.setattr("thespis.algos.imitators.contrastive_loss", both)
    b = batch_of(kind)

    def values(dropout):
        algo = make(kind, objective="iq", critic_network=Network(dropout=dropout))
        state = midway(algo, algo.Hyper())
        inputs = state, None, state.critic.params, b, b.valid, random.key(0)
        return algo.base.extra_critic_loss(*inputs)

    for whole, part in zip(values(0.0), values(0.5), strict=True):
        assert np.abs(whole - part).max() > 1e-3
