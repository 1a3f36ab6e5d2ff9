"""Algorithms are found by their names, and what is none is told why."""

import re
from dataclasses import dataclass, field, make_dataclass

import pytest

from thespis.algos import ALGORITHMS, SAC, registry
from thespis.core import Spec, ThespisError
from thespis.runs.config import make


def test_an_unknown_algorithm_is_answered_with_the_nearest():
    with pytest.raises(ThespisError, match=r"unknown algorithm 'sca'; did you mean sac\?"):
        make("sca", {"env": "jax:pendulum"})
    with pytest.raises(ThespisError, match="unknown algorithm 'ppo'; there is .*sac.*td3"):
        make("ppo", {"env": "jax:pendulum"})


def test_names_lead_to_classes_and_back():
    assert list(ALGORITHMS) == registry.names()[: len(ALGORITHMS)]
    for name, algorithm in ALGORITHMS.items():
        assert registry.find(name) is algorithm
        assert registry.name_of(algorithm) == name
        assert registry.module_of(name) is None
        assert registry.objection(algorithm) == ""
    assert registry.name_of("sac") == "sac"
    assert registry.module_of("mine:MySAC") == "mine"


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (SAC.update, "it is not a class but"),
        (dict, "put @dataclass[(]frozen=True[)] above it"),
        (dataclass(type("Thawed", (), {})), "put @dataclass[(]frozen=True[)] above it"),
        (Spec, "it lacks spec, hidden, batch_size, n_step, init, .*, Hyper, presets"),
        (type("Unmarked", (SAC,), {"__annotations__": {"size": int}}), "its field size needs"),
        (
            make_dataclass("Bare", [("size", int, field(kw_only=True))], bases=(SAC,), frozen=True),
            "its field size has no default",
        ),
    ],
)
def test_what_is_no_algorithm_is_told_why(found, why):
    assert re.search(why, registry.objection(found))
