"""A run begins with the parts of another that were asked for, or says why it cannot."""

import numpy as np
import pytest
from safetensors.numpy import load_file

import thespis
from tests.small import RUN, arguments, arrays
from thespis.core import ThespisError
from thespis.runs import checkpoint
from thespis.runs import config as configs

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One run that has learned a little."""
    return thespis.train("sac", out=tmp_path_factory.mktemp("whole"), **arguments(steps=200))


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three members that begin apart, and learn nothing."""
    given = arguments(seeds=(0, 1, 2), steps=200, updates_per_step=0)
    return thespis.train("sac", out=tmp_path_factory.mktemp("three"), **given)


def test_a_run_may_begin_with_parts_of_another(whole, three, tmp_path):
    donor = arrays(whole.path)
    start = arguments(steps=200, learning_starts=199)  # one update only
    run = thespis.train("sac", out=tmp_path, **start, init_from=f"{whole.path}:actor.params,target")
    (first,) = checkpoint.latest(run.path / "checkpoints")[-1:]
    assert first.name == "000000000100"
    mine = load_file(first / "state.safetensors")
    for name, x in mine.items():
        given = name.startswith(("actor.params", "target"))
        if "weight" in name:
            assert np.array_equal(x, donor[f"state.{name}"]) == given

    run = thespis.train("sac", out=tmp_path, **start, init_from=str(three.path))
    best = np.argmax(
        checkpoint.manifest(checkpoint.latest(three.path / "best")[0])["info"]["reward"]
    )
    mine = load_file(checkpoint.latest(run.path / "checkpoints")[-1] / "state.safetensors")
    donor = arrays(three.path)
    for name, x in mine.items():
        assert np.array_equal(x[0], donor[f"state.{name}"][best])


@pytest.mark.parametrize(
    ("given", "who"),
    [
        ({"init_from": "{}"}, "policy"),
        ({"init_from": "{}:actor.params,target"}, "policy"),
        ({"init_from": "{}:critic,target"}, "random"),  # whose actor is untrained
        ({"init_from": "{}", "warm_up": "random"}, "random"),
        ({"init_from": "{}:actor", "warm_up": "policy"}, "policy"),
        ({}, "random"),
    ],
)
@pytest.mark.parametrize("algo", ["sac", "td3", "taac"])
def test_an_actor_that_was_trained_before_acts_in_the_warm_up(whole, algo, given, who):
    """Noise acts a second time only if that is asked for."""
    given = {name: text.format(whole.path) for name, text in given.items()}
    assert configs.make(algo, RUN | given).warm_up == who


@pytest.mark.parametrize(
    ("part", "hidden", "message"),
    [
        (":actr", (8,), "has no part 'actr'; did you mean actor?"),
        (":nothing", (8,), "has no part 'nothing'; there is actor, critic, target, temperature"),
        (
            "",
            (16,),
            r"biases.0 is float32\[8\] there and float32\[16\] here; what fits is .*:temperature; "
            "or give hidden = 8, as there$",
        ),
        (":critic", (16,), r"critic.* here; what fits is .*:temperature; or give hidden = 8, as"),
    ],
)
def test_parts_that_do_not_fit_are_named(whole, tmp_path, part, hidden, message):
    with pytest.raises(ThespisError, match=message):
        thespis.train(
            "sac", out=tmp_path, **arguments(hidden=hidden), init_from=f"{whole.path}{part}"
        )
    assert not list(tmp_path.glob("sac/*"))
