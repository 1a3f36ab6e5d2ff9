"""Critics learn from the targets that were chosen; what cannot go together is refused."""

import jax.numpy as jnp
import pytest
from jax import random

from tests.algos import reference, switched
from tests.algos.test_switches import BATCH, both, critic, midway
from thespis.algos import DADS, MASAC, SAC, SQIL, TAAC, DiscreteSAC
from thespis.core import ThespisError


def test_a_random_subset_of_the_critics_makes_the_target(monkeypatch):
    """REDQ: each update is what NumPy computes with two of the critics, now these, now those."""
    algo = SAC(reference.spec(), hidden=(3,), critics=4, subset=2, actor_reduce="mean")
    hp = reference.scalars(SAC.Hyper, reference.HYPER)
    state, batch = midway(algo, hp), reference.transitions()
    noise = reference.fixed_noise(monkeypatch)
    inputs = switched.numpy(state), switched.plain(hp), switched.plain(batch)
    pairs = {
        pair: switched.sac(algo, *inputs, noise, 0, pair)[1]["target_value"]
        for pair in switched.subsets(4, 2)
    }
    update, seen = reference.quick(algo.update), set()
    for i in range(8):
        found = float(update(state, hp, batch, random.key(i), jnp.int32(0))[1]["target_value"])
        matches = tuple(p for p, wanted in pairs.items() if abs(found - wanted) < 1e-4)
        assert matches
        seen.add(matches)
    assert len(seen) > 2


REFUSED = {
    "diverge unless batch norm": {"target_update": "none"},
    "holds them; add critic.norm": {"target_update": "none"} | critic(input_norm="batch"),
    "subset is of target critics": {"target_update": "none", "subset": 1} | critic(**BATCH),
    "subset = 3: give 1 to 2": {"subset": 3},
    "add head = quantile": {"target_reduce": "truncated"},
    "dropped_quantiles = 3: give less than 3": {
        "head": "quantile",
        "quantiles": 3,
        "dropped_quantiles": 3,
    },
    "log_std_range": {"log_std_range": (2.0, -20.0)},
}


@pytest.mark.parametrize(("line", "options"), REFUSED.items(), ids=REFUSED)
def test_what_does_not_go_together_is_refused(line, options):
    with pytest.raises(ThespisError, match=line):
        SAC(reference.spec(), **options)


@pytest.mark.parametrize(
    ("Algorithm", "options"),
    [
        (TAAC, {"head": "huber"}),
        (TAAC, {"reward_norm": "std"}),
        (TAAC, {"shared_encoder": False}),
        (MASAC, {"target_update": "copy"}),
        (MASAC, {"shared_encoder": False}),
        (DADS, {"reward_norm": "std"}),
        (SQIL, {"reward_norm": "std"}),
        (DiscreteSAC, {"target_reduce": "mean"}),
    ],
)
def test_algorithms_refuse_choices_that_they_do_not_have(Algorithm, options):
    spec = {MASAC: reference.team_spec(), DiscreteSAC: reference.discrete_spec()}
    (name,) = options
    with pytest.raises(ThespisError, match=f"{name}: this algorithm has no such choice"):
        Algorithm(spec.get(Algorithm, reference.spec(descriptor="0")), **options)


def test_discrete_actions_and_imitation_refuse_heads_they_cannot_learn():
    with pytest.raises(ThespisError, match="take mse or huber"):
        DiscreteSAC(reference.discrete_spec(), head="categorical")
    with pytest.raises(ThespisError, match="clip_q needs"):
        DiscreteSAC(reference.discrete_spec(), head="huber", clip_q=True)
    with pytest.raises(ThespisError, match="learns by squares"):
        SQIL(reference.spec(), objective="ls-iq", head="categorical")
    with pytest.raises(ThespisError, match="neither with objective iq"):
        SQIL(reference.spec(), objective="iq", **both(**BATCH))
