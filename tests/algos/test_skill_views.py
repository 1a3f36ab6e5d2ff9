"""Policy and skill dynamics see the coordinates that were chosen for each of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from tests.algos.test_dads import make
from thespis.algos import DADS
from thespis.core import Spec, ThespisError


def test_three_choices_of_coordinates_stand_apart():
    algo = make()
    sizes = lambda algo: [algo.views.size(x) for x in ("policy_sees", "dynamics_sees", "predicts")]
    assert sizes(algo) == [1, 0, 2]  # blind to the descriptor, of which the change is predicted
    assert sizes(make(policy_sees="observation")) == [3, 2, 2]  # then the dynamics see it too
    assert sizes(make(with_reward=True)) == [3, 2, 2]  # a task may need to know the place
    assert sizes(make(policy_sees="observation", dynamics_sees="none")) == [3, 0, 2]
    assert sizes(make(dynamics_sees="descriptor[1:]", predicts="observation")) == [1, 1, 3]
    assert sizes(make(descriptor="observation")) == [3, 3, 3]
    assert sizes(make(descriptor="2", dynamics_sees="0,2")) == [2, 2, 1]
    state = jax.eval_shape(algo.init, random.key(0), algo.Hyper())
    assert state.actor.params.weights[0].shape[0] == 1 + 2
    assert state.critic.params.networks[0].weights[0].shape[0] == 1 + 2 + 2
    assert state.dynamics.params.weights[0].shape[0] == 2
    obs = jnp.array([[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(algo.views.look("policy_sees", obs), [[3]])
    np.testing.assert_array_equal(algo.views.look("predicts", obs), [[1, 2]])


def halves(obs):
    return obs[..., :1] / 2


def test_a_descriptor_may_be_a_function():
    algo = make(descriptor=f"{__name__}:halves")
    assert algo.views.sizes == {"observation": 3, "descriptor": 1}
    np.testing.assert_array_equal(algo.describe(jnp.array([[4.0, 5.0, 6.0]])), [[2]])
    assert algo.views.size("policy_sees") == 3  # nobody can know which coordinates it is made of


def test_a_descriptor_may_be_part_of_a_dict_observation():
    box = jax.ShapeDtypeStruct((2,), jnp.float32)
    spec = Spec({"descriptor": box, "observation": box}, reference.spec().action)
    algo = DADS(spec, hidden=(4,))
    obs = {"descriptor": jnp.array([[1.0, 2.0]]), "observation": jnp.array([[3.0, 4.0]])}
    np.testing.assert_array_equal(algo.describe(obs), [[1, 2]])
    np.testing.assert_array_equal(algo.views.look("policy_sees", obs), [[3, 4]])


def test_an_environment_without_a_descriptor_is_refused_with_a_hint():
    with pytest.raises(ThespisError, match="offers no descriptor: .*--descriptor 0,1"):
        DADS(reference.spec())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"descriptor": "3"}, "descriptor = 3: .* 0 to 2"),
        ({"descriptor": "place"}, "descriptor = place"),
        ({"dynamics_sees": "descriptor[2:]"}, "not within the 2 coordinates"),
        ({"policy_sees": "x,y"}, "give coordinates such as"),
        ({"descriptor": "no_such_module:f"}, "cannot be found"),
        ({"predicts": "none"}, "predicts = none"),
    ],
)
def test_what_cannot_work_is_refused(options, message):
    with pytest.raises(ThespisError, match=message):
        make(**options)
