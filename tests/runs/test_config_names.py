"""Names of other libraries, older names and seeds are understood as they were meant."""

import numpy as np
import pytest

from tests.runs.test_config import sac
from thespis.core import ThespisError
from thespis.runs.config import make
from thespis.runs.config_names import seed_list


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"total_timesteps": 5e4}, {"steps": 50_000}),
        ({"n_envs": 4}, {"envs": 4}),
        ({"net_arch": [32, 32]}, {"hidden": (32, 32)}),
        ({"n_critics": 3}, {"critics": 3}),
        ({"learning_rate": 1e-3}, {"actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3}),
        ({"learning_rate": 1e-3, "actor_lr": 1.0}, {"actor_lr": 1.0, "critic_lr": 1e-3}),
        ({"ent_coef": "auto"}, {"temperature": "log"}),
        ({"ent_coef": "auto_0.1"}, {"temperature": "log", "alpha": 0.1}),
        ({"ent_coef": 0.2}, {"temperature": "fixed", "alpha": 0.2}),
        ({"gradient_steps": 2, "train_freq": 4}, {"updates_per_step": 0.5}),
        ({"gradient_steps": -1, "train_freq": 4, "n_envs": 3}, {"updates_per_step": 1.0}),
        ({"gradient_steps": 1, "n_envs": 4}, {"updates_per_step": 0.25}),
        ({"seed": 7}, {"seeds": (7,)}),
    ],
)
def test_the_names_of_stable_baselines3_are_understood(given, expected):
    config = sac(**given)
    found = vars(config) | config.options | config.hp
    assert {name: found[name] for name in expected} == expected


def test_one_option_chooses_the_precision_of_actor_and_critics():
    of = lambda **given: [sac(**given).options[f"{name}.dtype"] for name in ("actor", "critic")]
    assert of() == ["float32", "float32"]
    assert of(dtype="bfloat16") == ["bfloat16", "bfloat16"]
    assert of(**{"dtype": "bfloat16", "actor.dtype": "float32"}) == ["float32", "bfloat16"]


def test_options_may_have_their_older_names():
    given = {"env": "jax:pointmass", "skill_kind": "one-hot", "allotment": "equal"}
    assert make("dads", given).options["assignment"] == "equal"


def test_the_names_of_stable_baselines3_for_td3():
    config = make("td3", {"env": "x", "policy_delay": 3, "target_policy_noise": 0.3,
                          "target_noise_clip": 0.6})  # fmt: skip
    assert config.options["delay"] == 3
    assert config.hp.items() >= {"target_noise": 0.3, "noise_clip": 0.6}.items()


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        ("0-3", (0, 1, 2, 3)),
        ("3", (3,)),
        ("1 5,7", (1, 5, 7)),
        (["0-1", "5"], (0, 1, 5)),
        (range(2), (0, 1)),
        (4, (4,)),
        (np.arange(2), (0, 1)),
    ],
)
def test_seeds_are_numbers_or_ranges(given, seeds):
    assert seed_list(given) == seeds
    assert all(type(seed) is int for seed in seed_list(given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("4-2", "seeds = 4-2 is empty: give a range such as 2-4"),
        ("", "seeds is empty: give a range such as 0-4"),
        ((), "seeds is empty"),
        ("a-b", "seeds = a-b: give a range such as 0-4, or numbers like 1 2 3"),
        ("-1", "seeds = -1: give a range"),
        ([1.5], "seeds = 1.5: give a range"),
        ("0-2 1", "seeds = 0 1 2 1: 1 is there twice"),
        (2**31, "give numbers below 2147483648"),
    ],
)
def test_seeds_that_make_no_members_are_refused(given, message):
    with pytest.raises(ThespisError, match=message):
        seed_list(given)


def test_members_have_the_seeds_from_the_first_on():
    assert sac(members=3).seeds == (0, 1, 2)
    assert sac(members=3, seed=5).seeds == (5, 6, 7)
    assert sac(members="2", seeds="4,9").seeds == (4, 9)
    assert sac(members=1).seeds == (0,)


def test_many_seeds_are_read_in_no_time():
    assert seed_list("0-19999") == tuple(range(20_000))
    with pytest.raises(ThespisError, match=r"seeds = 0 1 2 .* \.\.\.: 7 is there twice"):
        seed_list("0-19999 7")
