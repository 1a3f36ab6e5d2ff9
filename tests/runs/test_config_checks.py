"""What is not given follows from the rest, and what cannot work is refused in one line."""

import pytest

from tests.runs.test_config import sac
from thespis import envs
from thespis.core import ThespisError
from thespis.runs.config import make
from thespis.runs.config_checks import with_eval_freq


def test_what_is_not_given_follows_from_the_steps():
    config = sac(steps=20_000)
    assert config.learning_starts == 1000
    assert config.log_freq == 1000
    assert config.checkpoint_freq == 2000
    assert config.seeds == (0,)
    assert config.options["hidden"] == (256, 256)
    assert sac(steps=5000).learning_starts == 500
    assert sac(steps=1000, batch_size=300).learning_starts == 300
    assert sac(steps=20_000, log_freq=10).log_freq == 10
    assert sac(steps=20_000, eval_freq=10).log_freq == 10


@pytest.mark.parametrize(
    ("env", "given", "every"),
    [
        ("jax:pendulum", {}, 1000),
        ("jax:pendulum", {"eval_freq": 300}, 300),
        ("Pendulum-v1", {}, 2000),  # ten episodes of 200 steps
        ("Pendulum-v1", {"eval_freq": 300}, 300),
        ("Pendulum-v1", {"eval_episodes": 3}, 1000),
        ("Pendulum-v1", {"eval_episodes": 11}, 3000),  # with every third row
        ("Pendulum-v1", {"steps": 1500}, 2025),  # at the end alone
        ("Pendulum-v1", {"steps": 100_000}, 5000),
    ],
)
def test_an_evaluation_in_python_has_no_more_steps_than_are_trained_before_it(env, given, every):
    config = sac(**{"env": env, "steps": 20_000} | given)
    config = with_eval_freq(config, envs.make(env))
    assert config.eval_freq == every
    assert config.eval_freq % config.log_freq == 0


def test_a_short_run_learns_from_the_steps_there_are():
    assert sac(steps=100).learning_starts == 10
    assert sac(steps=100, preset="crossq").learning_starts == 10
    assert sac(steps=100, envs=8).learning_starts == 24
    assert sac(steps=6000, preset="crossq").learning_starts == 5000
    assert sac(steps=1000, batch_size=300, learning_starts=200).learning_starts == 200


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"env": None}, "env is missing"),
        ({"demo_episodes": 3}, "demo_episodes = 3 is for demos: give demos, or leave it out"),
        ({"skill_steps": 20}, "skill_steps = 20 is for skills_from: give skills_from, or leave"),
        ({"gama": 0.9}, r"unknown option 'gama'; did you mean gamma\?"),
        ({"hp.gama": 0.9}, r"unknown hyper-parameter 'hp.gama'; did you mean gamma\?"),
        ({"hp.hidden": 3}, "unknown hyper-parameter 'hp.hidden'"),
        ({"xyzzy": 1}, "unknown option 'xyzzy'; `thespis train ALGO --help-all` lists them all"),
        ({"gamma": 1.5}, "hyper-parameter gamma = 1.5 is out of range: give between 0 and 1"),
        ({"gamma": "high"}, "hyper-parameter gamma = high: give a number"),
        ({"gamma": [0.9, 0.8]}, "hyper-parameter gamma has 2 values for 1 members"),
        ({"actor_lr": -1e-3}, "hyper-parameter actor_lr = -0.001 is out of range"),
        ({"actor_lr": float("nan")}, "hyper-parameter actor_lr = nan is out of range"),
        ({"preset": "qdx"}, r"preset = qdx: sac has no preset of this name; did you mean qdax\?"),
        ({"steps": 0}, "steps = 0: give at least 1"),
        ({"steps": 2**31}, "steps = 2147483648: give at most 2147483647"),
        ({"steps": 10**9, "updates_per_step": 3.0}, "give fewer than 2147483648 steps and updates"),
        ({"steps": "many"}, "steps = many: give a whole number"),
        ({"envs": 0}, "envs = 0: give at least 1"),
        ({"eval_freq": 0}, "eval_freq = 0: give at least 1"),
        ({"checkpoint_freq": -5}, "checkpoint_freq = -5: give at least 1"),
        ({"eval_episodes": 0}, "eval_episodes = 0: give at least 1"),
        ({"threads": 0}, "threads = 0: give at least 1"),
        ({"critics": 0}, "critics = 0: give at least 1"),
        ({"n_step": 0}, "n_step = 0: give at least 1"),
        ({"batch_size": 0}, "batch_size = 0: give at least 1"),
        ({"hidden": (64, 0)}, "hidden = 64 0: give at least 1"),
        ({"critic_hidden": (0,)}, "critic_hidden = 0: give at least 1"),
        ({"dropped_quantiles": -1}, "dropped_quantiles = -1: give at least 0"),
        ({"hidden": "wide"}, "hidden = wide: give a whole number"),
        ({"std": "wide"}, "std = wide: give one of exp, tanh, softplus"),
        ({"warm_up": "none"}, "warm_up = none: give one of random, policy"),
        ({"updates_per_step": -1}, "updates_per_step = -1: give 0 or more"),
        ({"updates_per_step": float("inf")}, "updates_per_step = inf: give a number"),
        ({"train_freq": 0}, "train_freq = 0: give at least 1"),
        ({"ent_coef": "warm"}, "ent_coef = warm: give auto, auto_0.1 or a number"),
        ({"device": "cuda"}, "device = cuda: give one of auto, cpu, gpu, tpu"),
        ({"dtype": "float16"}, "actor.dtype = float16: give one of float32, bfloat16"),
        ({"learning_rate": "fast"}, "learning_rate = fast: give a number"),
        ({"seed": 1, "seeds": (1, 2)}, "both seed and seeds are given"),
        (
            {"learning_starts": 500, "buffer_size": 400, "steps": 1000},
            "learning_starts = 500 is more than buffer_size = 400 holds",
        ),
        (
            {"n_step": 10, "envs": 32, "learning_starts": 300, "steps": 1000},
            "learning_starts = 300 holds no 10-step transition of 32 environments: .* least 384",
        ),
        (
            {"steps": 100, "learning_starts": 200},
            "steps = 100 ends before learning starts at 200: raise steps, or lower learning_starts",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_what_would(given, message):
    with pytest.raises(ThespisError, match=message) as caught:
        sac(**given)
    assert "\n" not in str(caught.value)


def test_no_quantile_need_be_dropped():
    assert sac(preset="tqc", dropped_quantiles=0).options["dropped_quantiles"] == 0


@pytest.mark.parametrize("name", ["delay", "critics", "n_step"])
def test_td3_counts_from_one(name):
    with pytest.raises(ThespisError, match=f"{name} = 0: give at least 1"):
        make("td3", {"env": "jax:pendulum", name: 0})


def test_threads_are_what_the_user_asked_for(monkeypatch):
    monkeypatch.setenv("NPROC", "3")
    assert sac().threads == 3
    assert sac(threads=2).threads == 2
    monkeypatch.delenv("NPROC")
    assert sac(hidden=(8, 8)).threads == 1


@pytest.mark.parametrize(
    ("algo", "given", "fitness", "scores"),
    [
        *((algo, {}, "eval/mean_reward", 5) for algo in ("sac", "td3", "discrete-sac", "taac")),
        ("masac", {}, "eval/mean_reward", 5),
        ("dads", {}, "eval/skill_dependence", 5),
        ("dads", {"objective": "metra"}, "eval/skill_dependence", 5),
        ("dads", {"with_reward": True}, "eval/mean_reward", 5),
        ("sqil", {"demos": "expert.npz"}, "eval/similarity", 1),
        ("dads", {"pbt.fitness": "train/intrinsic_reward"}, "train/intrinsic_reward", 1),
    ],
)
def test_a_population_is_tuned_by_what_its_algorithm_is_for(algo, given, fitness, scores):
    given = {"env": "jax:pendulum", "members": 8, "pbt": True, "eval_episodes": 5} | given
    config = make(algo, given)
    assert (config.tuning.fitness, config.scores) == (fitness, scores)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"members": 0}, "members = 0: give at least 1"),
        ({"members": "many"}, "members = many: give a whole number"),
        ({"members": 4, "seeds": "0-2"}, "members = 4, but there are 3 seeds: leave one"),
        ({"pbt": True}, "tuner = pbt needs a population, not one member: give members, such as 8"),
        ({"pbt": True, "seeds": 3}, "needs a population, not one member"),
        ({"members": 4, "tuner": "bpt"}, "tuner = bpt: give one of pbt,"),
        ({"members": 4, "pbt": True, "tuner": "none"}, "both pbt and tuner = none are given"),
        ({"members": 4, "pbt": False, "pbt.best": 1}, "pbt is false, but a tuner is given"),
        ({"members": 4, "pbt": True, "pbt.intervall": 1}, "unknown option 'intervall' of pbt; did"),
        ({"members": 4, "tuner": "random", "pbt.best": 1}, "unknown option 'best' of random"),
        ({"members": 4, "pbt.interval": 0}, "pbt.interval = 0: give at least 1"),
        ({"members": 4, "pbt.best": 3, "pbt.replaced": 2}, "are 3 [+] 2 of 4 members: give fewer"),
        ({"members": 4, "pbt.tuned": "gama"}, "tuned = gama: unknown hyper-parameter; did you"),
        (
            {"members": 4, "pbt": True, "pbt.exploit": "t-test", "eval_episodes": 1},
            "t-test needs 2",
        ),
        (
            {"members": 4, "pbt.replay": "shared", "devices": 2},
            "pbt.replay = shared needs all members on one device, not 2",
        ),
        ({"members": 4, "pbt": 3}, "pbt = 3: give one of true, false"),
    ],
)
def test_a_population_that_cannot_work_is_refused(given, message):
    with pytest.raises(ThespisError, match=message):
        sac(**given)
