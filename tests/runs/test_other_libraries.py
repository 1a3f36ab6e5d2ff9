"""What users of Stable-Baselines3 and CleanRL write either works or says what to write."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import thespis
from thespis.core import ThespisError
from thespis.runs.config import make
from thespis.runs.other_libraries import UNSUPPORTED


class ReLU:
    """PyTorch's classes of activations are known by their names."""


class LeakyReLU:
    pass


class Arm(gymnasium.Env):
    """Has actions of four dimensions."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Box(-1, 1, (4,), np.float32)


def chosen(algo="sac", **given):
    config = make(algo, {"env": "jax:pendulum"} | given)
    return vars(config) | config.options | config.hp


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"net_arch": [32]}, {"hidden": (32,), "critic_hidden": None}),
        ({"net_arch": {"pi": [32], "qf": [64, 64]}}, {"hidden": (32,), "critic_hidden": (64, 64)}),
        ({"n_critics": 3}, {"critics": 3}),
        ({"activation_fn": ReLU}, {"actor.activation": "relu", "critic.activation": "relu"}),
        ({"activation_fn": np.tanh}, {"actor.activation": "tanh", "critic.activation": "tanh"}),
        ({}, {"hidden": (256, 256)}),
    ],
)
def test_policy_kwargs_mean_the_same(given, expected):
    found = chosen(policy_kwargs=given)
    assert {name: found[name] for name in expected} == expected


def test_what_is_given_by_its_own_name_wins_over_policy_kwargs():
    assert chosen(policy_kwargs={"n_critics": 3}, n_critics=4)["critics"] == 4
    mixed = chosen(policy_kwargs={"activation_fn": ReLU}, **{"critic.activation": "elu"})
    assert (mixed["actor.activation"], mixed["critic.activation"]) == ("relu", "elu")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"policy_kwargs": "dict(net_arch=[64])"},
            "give its parts as options: net_arch, n_critics",
        ),
        ({"policy_kwargs": {"net_arch": {"pi": [3]}}}, "a dict of pi for the actor and qf for the"),
        ({"net_arch": {"pi": [3], "vf": [3]}}, "a dict of pi for the actor and qf for the critics"),
        ({"net_arch": "small"}, "net_arch = small: give a whole number"),
        ({"policy_kwargs": {"activation_fn": LeakyReLU}}, "LeakyReLU: give one of relu, elu, silu"),
        (
            {"policy_kwargs": {"log_std_init": -3}},
            "policy_kwargs = log_std_init: .*; give log_std_ra",
        ),
        (
            {"policy_kwargs": {"odd": 1}},
            "policy_kwargs = odd: .*net_arch, n_critics and activation",
        ),
        ({"ent_coef": "auto_x"}, "ent_coef = auto_x: give auto, auto_0.1 or a number"),
        (
            {"learning_rate": lambda left: 3e-4 * left},
            "learning_rate = 0.0003, lr_schedule = linear ",
        ),
        (
            {"learning_rate": lambda left: 1e-3 + left * 1e-3},
            "lr_end = 0.5, the final fraction",
        ),
        ({"learning_rate": lambda: 1e-3}, "give a number; for a schedule, add lr_sched"),
        ({"lr": "lin_7.3e-4"}, "learning_rate = 0.00073, lr_schedule = linear .* and lr_end = 0,"),
        ({"learning_rate": "fast"}, "learning_rate = fast: give a number"),
        ({"target_entropy": "low"}, "target_entropy = low: give a number, or auto"),
        (
            {"train_freq": (1, "episode")},
            "updates are scheduled by steps, not episodes; give updates_per",
        ),
        ({"steps": 900, "total_timesteps": 900}, "both steps and total_timesteps are given"),
        (
            {"policy_delay": 2},
            "unknown option 'policy_delay': this algorithm has no delay, its name",
        ),
    ],
)
def test_what_does_not_work_says_what_to_write(given, message):
    with pytest.raises(ThespisError, match=message):
        chosen(**given)


def test_what_is_said_of_a_schedule_is_a_schedule_here():
    given = {"learning_rate": 3e-4, "lr_schedule": "linear", "lr_end": 0}
    assert chosen(**given)["actor_lr"] == 3e-4


def test_a_learned_temperature_is_learned_whatever_the_default():
    assert chosen("sqil", demos="x.npz", ent_coef="auto")["temperature"] == "log"
    assert chosen(preset="qdax", ent_coef="auto_0.1")["temperature"] == "exp"  # learned as it is
    assert chosen("taac", ent_coef="auto_0.1")["alpha"] == 0.1
    with pytest.raises(ThespisError, match="TAAC learns its temperatures; give auto, or auto_0.2"):
        chosen("taac", ent_coef=0.2)


@pytest.mark.parametrize("name", ["ent_coef", "target_entropy"])
def test_without_an_entropy_its_options_are_refused_as_they_were_written(name):
    message = f"{name} = auto: TD3 has no entropy in its objective; leave it out, or use sac"
    with pytest.raises(ThespisError, match=message):
        chosen("td3", **{name: "auto"})


def test_an_automatic_target_entropy_is_minus_one_per_dimension():
    assert chosen(target_entropy="auto", preset="qdax", env=Arm)["target_entropy"] == -1


def test_a_target_entropy_of_the_whole_action_is_not_multiplied():
    """A number is either theirs or ours where an action has several dimensions."""
    assert chosen(target_entropy=-3)["target_entropy"] == -3  # of one dimension
    for given, each in ((-2, "-0.5"), ([-2, -4], "-0.5 -1")):
        message = "per action dimension, of which there are 4, or the total as in Stable-Baselines3"
        with pytest.raises(ThespisError, match=f"{message}.* hp.target_entropy = {each} if it"):
            chosen(target_entropy=given, env=Arm, members=2)
    assert chosen(**{"hp.target_entropy": -0.5, "env": Arm})["target_entropy"] == -0.5
    assert chosen(target_entropy=lambda spec: -2 / spec.action.size, env=Arm)["target_entropy"] < 0
    assert chosen("discrete-sac", target_entropy=0.3, env="jax:cartpole")["target_entropy"] == 0.3


@pytest.mark.parametrize(
    ("algo", "given", "expected"),
    [
        ("sac", {"env_id": "jax:pendulum", "env": None}, {"env": "jax:pendulum"}),
        ("sac", {"num_envs": 2, "q_lr": 1e-3, "policy_lr": 3e-4},
         {"envs": 2, "critic_lr": 1e-3, "actor_lr": 3e-4}),
        ("sac", {"target_network_frequency": 2}, {"target_every": 2}),
        ("sac", {"target_update_interval": 2}, {"target_every": 2}),
        ("sac", {"train_freq": (4, "step")}, {"updates_per_step": 0.25}),
        ("td3", {"policy_frequency": 3, "exploration_noise": 0.2, "policy_noise": 0.3},
         {"delay": 3, "noise": 0.2, "target_noise": 0.3}),
    ],
)  # fmt: skip
def test_names_of_cleanrl_mean_the_same(algo, given, expected):
    found = chosen(algo, **given)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_options_that_mean_nothing_here_say_what_to_do(name):
    with pytest.raises(ThespisError, match=re.escape(UNSUPPORTED[name])):
        chosen(**{name: 1})


def test_an_algorithm_is_not_a_trainer():
    with pytest.raises(ThespisError, match='to train: thespis.train\\(SAC, env="Pendulum-v1"'):
        thespis.SAC("MlpPolicy")
