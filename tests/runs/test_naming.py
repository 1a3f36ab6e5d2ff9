"""Folders are called as the user says, with fields of the run, and so that every disk takes it."""

import pytest

from thespis.errors import ThespisError
from thespis.runs.config import make
from thespis.runs.naming import folder_name


def named(name, **options) -> str:
    return folder_name(make("sac", {"env": "jax:pendulum", "name": name} | options), "jax-pendulum")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        (None, "jax-pendulum"),
        ("baseline", "baseline"),
        ("{algo}-{env}-{critic_lr}", "sac-jax-pendulum-0.001"),
        ("{hidden} {critic.norm}", "256-256-none"),
        ("{batch-size}", "256"),
        ("{preset}", "none"),
        ("seed {seed} of {members}", "seed-0-of-1"),
        ("../../etc/passwd", "etc-passwd"),
        (".hidden", "hidden"),
        ("a\tb/c\\d:e*f", "a-b-c-d-e-f"),
        ("été", "été"),
        ("x" * 999, "x" * 200),
    ],
)
def test_a_name_becomes_that_of_a_folder(name, folder):
    assert named(name) == folder


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{critc_lr}", r"unknown field \{critc_lr\}; did you mean critic_lr"),
        ("{zzzzzz}", r"give an option, such as \{env\}"),
        ("{env", "a brace is not closed"),
        ("}{", "a brace is not closed"),
        ("///", "give letters or digits"),
    ],
)
def test_a_wrong_name_is_refused_with_the_config(name, message):
    with pytest.raises(ThespisError, match=message):
        make("sac", {"env": "jax:pendulum", "name": name})
