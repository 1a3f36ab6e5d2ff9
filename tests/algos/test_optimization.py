"""Learning rates follow their schedule over the run."""

import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from tests.algos import reference
from tests.small import arguments
from thespis.algos import SAC
from thespis.algos.optimization import Optimization


@pytest.mark.slow  # runs/test_build.py has it at less cost
def test_a_schedule_ends_with_the_run(tmp_path):
    given = arguments(steps=200, learning_starts=100, eval_freq=200, out=tmp_path)
    run = thespis.train("sac", **given | {"hidden": (4,), "lr_schedule": "linear", "lr_end": 0.0})
    assert np.isfinite(run.metrics["train/critic_loss"][-1])
    assert run.metrics["hparams/schedule_updates"][-1] == 100


@pytest.mark.parametrize(
    ("schedule", "half"), [("constant", 1.0), ("linear", 0.6), ("cosine", 0.6)]
)
def test_rates_go_to_their_end_and_nothing_else_does(schedule, half):
    hp = SAC.Hyper(actor_lr=0.1, gamma=0.9, lr_end=0.2, schedule_updates=100.0)
    hp = reference.scalars(SAC.Hyper, vars(hp))
    after = reference.quick(lambda step: Optimization(lr_schedule=schedule).scheduled(hp, step))
    end = 1.0 if schedule == "constant" else 0.2
    for step, factor in ((0, 1.0), (50, half), (100, end), (500, end)):
        found = after(np.int32(step))
        np.testing.assert_allclose(found.actor_lr, 0.1 * factor, rtol=1e-5)
        np.testing.assert_allclose(found.critic_lr, hp.critic_lr * factor, rtol=1e-5)
        assert found.gamma == np.float32(0.9)


def test_only_adamw_decays_weights():
    hp = SAC.Hyper(weight_decay=0.5)
    still = lambda net: (jnp.zeros(()), (net, None))  # no gradient

    @reference.quick
    def learned(weight):
        both = (Optimization(optimizer=name) for name in ("adam", "adamw"))
        return [x.apply_gradient(x.train_state(weight), still, hp, 0.1)[0].params for x in both]

    weight = np.ones((2, 3), np.float32)
    kept, decayed = learned(weight)
    np.testing.assert_array_equal(kept, weight)
    np.testing.assert_allclose(decayed, 0.95 * weight, rtol=1e-6)
