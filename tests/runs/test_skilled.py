"""One member of a run follows the skill that it is told."""

import jax.numpy as jnp
import numpy as np
import pytest

from thespis.errors import ThespisError

pytestmark = pytest.mark.usefixtures("kept")


def test_a_policy_may_be_told_its_skill(skilled):
    policy = skilled.run.policy(skill=(1.0, -1.0))
    told = skilled.act(jnp.zeros((1, 2)), jnp.array([[1.0, -1.0]]))[0]
    np.testing.assert_allclose(policy(np.zeros(2, np.float32)), told[0], rtol=1e-5)


def test_skills_are_read_as_people_write_them(far):
    """Those of METRA are directions: whatever the length of what is written."""
    assert far.skills(5).shape == (5, 2)
    np.testing.assert_array_equal(far.skills(5, seed=1), far.skills(5, seed=1))
    np.testing.assert_allclose(far.skill("0.5 0"), [1, 0], atol=1e-6)
    for wrong in ("1", "2,0", "x,y", "0,0", ""):
        with pytest.raises(ThespisError, match="give 2 numbers from -1 to 1, not all 0, such as"):
            far.skill(wrong)
