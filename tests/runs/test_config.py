"""A config is complete, or refused in one line that names the field and what would work."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.odd_values import configuration
from thespis.core import ThespisError
from thespis.runs.config import Config, make


def sac(**given) -> Config:
    return make("sac", {"env": "jax:pendulum"} | given)


def test_a_name_finds_its_place_with_and_without_a_prefix():
    config = sac(**{"algo.hidden": (8,), "hp.gamma": 0.9, "tau": 0.1, "batch-size": 32})
    assert (config.options["hidden"], config.options["batch_size"]) == ((8,), 32)
    assert config.hp.items() >= {"gamma": 0.9, "tau": 0.1}.items()


def test_every_hyper_parameter_may_differ_between_members():
    config = sac(seeds=(0, 1), gamma=[0.9, 0.99], tau=np.float32(0.5), alpha=np.array([1.0, 2.0]))
    expected = {"gamma": [0.9, 0.99], "tau": 0.5, "alpha": [1.0, 2.0]}
    assert {name: config.hp[name] for name in expected} == expected


def test_a_hyper_parameter_may_follow_a_rule_of_ones_own():
    """It is told what the environment is like; the run knows its value, so that it can go on."""
    half = lambda spec: 0.5 * float(np.log(spec.action.size + 1))
    config = make("taac", {"env": "jax:pendulum", "target_switch_entropy": half})
    assert config.hp["target_switch_entropy"] == pytest.approx(0.5 * np.log(2))
    assert type(config.hp["target_switch_entropy"]) is float
    with pytest.raises(ThespisError, match="env is missing"):
        make("taac", {"env": None, "target_entropy": half})
    with pytest.raises(ThespisError, match="target_switch_entropy = 3 is out of range"):
        make("taac", {"env": "jax:pendulum", "target_switch_entropy": lambda spec: 3})


# --- whatever people pass -------------------------------------------------------------------


def test_numbers_and_arrays_of_numpy_and_jax_are_taken_as_pythons_own():
    given = {"steps": np.int64(5000), "hidden": np.array([8, 4]), "batch_size": jnp.array(16)}
    given |= {"members": np.int32(2), "seed": np.array(3), "learning_rate": np.float64(0.5)}
    given |= {"normalize_observations": np.bool_(True), "tau": np.array(0.25)}
    config = sac(**given, **{"pbt.interval": np.int64(100), "pbt": np.bool_(True)})
    assert (config.steps, config.seeds) == (5000, (3, 4))
    assert config.options.items() >= {"hidden": (8, 4), "batch_size": 16}.items()
    assert config.options["normalize_observations"] is True
    assert config.hp == dict.fromkeys(("actor_lr", "critic_lr", "alpha_lr"), 0.5) | {"tau": 0.25}
    assert config.pbt["interval"] == 100
    assert json.loads(json.dumps([config.options, config.hp, config.pbt, config.seeds]))
    assert sac(hidden=iter([8, 4])).options["hidden"] == (8, 4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"preset": {"gamma": 0.9}}, "preset = {'gamma': 0.9}: sac has no preset of this name"),
        ({"preset": np.zeros(2)}, "has no preset of this name; there is"),
        ({"steps": np.zeros((1, 1))}, r"steps = \[\[0.0\]\]: give a whole number"),
        ({"steps": 10**400}, "steps = 1000.* ...: give a whole number"),
        ({"warm_up": np.array(["random", "policy"])}, "warm_up = .*: give one of random, policy"),
        ({"tuner": ["pbt"]}, r"tuner = \['pbt'\]: give one of pbt"),
        ({"pbt": {"tuned": {"gamma": 0.9}}}, "tuned = gamma: 0.9 is no prior"),
        ({"pbt": {1: 2}}, "unknown option '1' of pbt"),
        ({"gamma": jax.random.key(0)}, "gamma = .*: give a number, or a list of one per member"),
        ({"reward_scale": 1e300}, "reward_scale = 1e.300 is out of range"),
        ({"critics": 2**30}, "critics = 1073741824: give at most 1000"),
        ({"hidden": 2**40}, "hidden = 1099511627776: give at most 2147483647"),
        ({"seeds": "0-2000000000"}, "seeds: give at most 1048576 of them"),
        ({"target_entropy": len}, "target_entropy: <built-in function len> raised TypeError"),
        ({"seeds": b"12"}, "seeds = b'12': give a range such as 0-4"),
    ],
)
def test_what_is_of_no_use_is_refused_in_one_line(given, message):
    with pytest.raises(ThespisError, match=message):
        sac(**{"steps": 5000} | given)


def test_nothing_but_clear_lines_whatever_is_given():
    for seed in range(150):
        algo, given = configuration(seed)
        told = ""
        try:
            make(algo, given)
        except ThespisError as error:
            told = str(error)
        assert "\n" not in told, seed
        assert len(told) < 2000, seed
