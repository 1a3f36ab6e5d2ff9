"""A config is complete, or refused in one line that names the field and what would work."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.odd_values import configuration
from tests.small import RUN, Toy
from thespis import envs
from thespis.core import ThespisError
from thespis.runs import config_file
from thespis.runs.config import Config, make
from thespis.runs.config_checks import with_eval_freq
from thespis.runs.config_names import seed_list
from thespis.runs.formats import FORMAT
from thespis.tuning import PBT, TUNERS


def sac(**given) -> Config:
    return make("sac", {"env": "jax:pendulum"} | given)


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


def test_a_name_finds_its_place_with_and_without_a_prefix():
    config = sac(**{"algo.hidden": (8,), "hp.gamma": 0.9, "tau": 0.1, "batch-size": 32})
    assert (config.options["hidden"], config.options["batch_size"]) == ((8,), 32)
    assert config.hp.items() >= {"gamma": 0.9, "tau": 0.1}.items()


def test_every_hyper_parameter_may_differ_between_members():
    config = sac(seeds=(0, 1), gamma=[0.9, 0.99], tau=np.float32(0.5), alpha=np.array([1.0, 2.0]))
    expected = {"gamma": [0.9, 0.99], "tau": 0.5, "alpha": [1.0, 2.0]}
    assert {name: config.hp[name] for name in expected} == expected


def test_what_is_given_wins_over_the_preset_and_the_preset_over_defaults():
    config = sac(preset="qdax", gamma=0.5)
    assert config.options["std"] == "softplus"
    assert config.warm_up == "policy"
    assert config.hp.items() >= {"gamma": 0.5, "target_entropy": -0.5}.items()
    assert sac(preset="di-engine", hidden=(8, 8), steps=20_000).options["hidden"] == (8, 8)


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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"env": None}, "env is missing"),
        ({"gama": 0.9}, r"unknown option 'gama'; did you mean gamma\?"),
        ({"hp.gama": 0.9}, r"unknown hyper-parameter 'hp.gama'; did you mean gamma\?"),
        ({"hp.hidden": 3}, "unknown hyper-parameter 'hp.hidden'"),
        ({"xyzzy": 1}, "unknown option 'xyzzy'; `thespis train ALGO --help-all` lists them all"),
        ({"gamma": 1.5}, "hyper-parameter gamma = 1.5 is out of range: give between 0 and 1"),
        ({"gamma": "high"}, "hyper-parameter gamma = high: give a number"),
        ({"gamma": [0.9, 0.8]}, "hyper-parameter gamma has 2 values for 1 members"),
        ({"actor_lr": -1e-3}, "hyper-parameter actor_lr = -0.001 is out of range"),
        ({"actor_lr": float("nan")}, "hyper-parameter actor_lr = nan is out of range"),
        ({"preset": "qdx"}, r"preset = qdx: sac has none of this name; did you mean qdax\?"),
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
            "steps = 100 end before learning starts at 200: raise steps, or lower learning_starts",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_what_would(given, message):
    with pytest.raises(ThespisError, match=message) as caught:
        sac(**given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["delay", "critics", "n_step"])
def test_td3_counts_from_one(name):
    with pytest.raises(ThespisError, match=f"{name} = 0: give at least 1"):
        make("td3", {"env": "jax:pendulum", name: 0})


def test_an_unknown_algorithm_is_answered_with_the_nearest():
    with pytest.raises(ThespisError, match=r"unknown algorithm 'sca'; did you mean sac\?"):
        make("sca", {"env": "jax:pendulum"})
    with pytest.raises(ThespisError, match="unknown algorithm 'ppo'; there is .*sac.*td3"):
        make("ppo", {"env": "jax:pendulum"})


def test_threads_are_what_the_user_asked_for(monkeypatch):
    monkeypatch.setenv("NPROC", "3")
    assert sac().threads == 3
    assert sac(threads=2).threads == 2
    monkeypatch.delenv("NPROC")
    assert sac(hidden=(8, 8)).threads == 1


def test_a_config_survives_being_written(tmp_path):
    config = make("sac", RUN | {"seeds": (0, 1), "gamma": [0.9, 0.8], "preset": "qdax"})
    config_file.write(tmp_path, config, "thespis train")
    again, saved = config_file.read(tmp_path)
    assert again.hp == {"gamma": [0.9, 0.8]} | {k: v for k, v in again.hp.items() if k != "gamma"}
    assert again.hp["target_entropy"] == -0.5
    assert saved["command"] == "thespis train"
    assert saved["versions"]["jax"]
    assert {**vars(again), "hp": None} == {**vars(config), "hp": None}
    assert saved["format"] == FORMAT


def test_an_environment_without_a_name_is_marked(tmp_path):
    config_file.write(tmp_path, make("sac", RUN | {"env": Toy, "eval_env": lambda: Toy()}), "")
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["env"] == saved["eval_env"] == "Toy"
    assert saved["env_given"] is saved["eval_env_given"] is True


@pytest.mark.parametrize("content", ["{}", "[]", '{"algo": "sac", "seeds": 3}'])
def test_a_config_of_something_else_is_refused(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ThespisError, match="config.json is not the config of a run"):
        config_file.read(tmp_path)


# --- populations ----------------------------------------------------------------------------


def test_members_have_the_seeds_from_the_first_on():
    assert sac(members=3).seeds == (0, 1, 2)
    assert sac(members=3, seed=5).seeds == (5, 6, 7)
    assert sac(members="2", seeds="4,9").seeds == (4, 9)
    assert sac(members=1).seeds == (0,)


@pytest.mark.parametrize(
    "given",
    [
        {"pbt": True, "pbt.best": 2},
        {"pbt": {"best": 2}},
        {"pbt": PBT(best=2)},
        {"tuner": "pbt", "pbt.best": "2"},
        {"pbt": "true", "pbt.best": 2},
    ],
)
def test_a_tuner_may_be_given_in_several_ways(given):
    config = sac(steps=20_000, members=8, **given)
    assert config.tuner == "pbt"
    assert config.tuning == PBT(best=2, interval=1000, fitness="eval/mean_reward")


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


def test_without_a_tuner_there_is_none():
    assert sac(members=8).tuner is None
    assert sac(members=8, pbt=False).tuner is None
    assert sac(members=8, pbt=None).tuning is None


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


def test_a_tuner_of_an_unknown_kind_is_to_be_added(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Mine(PBT):
        pass

    with pytest.raises(ThespisError, match="add its class to thespis.tuning.TUNERS first"):
        sac(members=4, pbt=Mine())
    monkeypatch.setitem(TUNERS, "mine", Mine)
    assert sac(members=4, pbt=Mine()).tuner == "mine"


def test_a_config_of_a_population_is_read_as_it_was_written(tmp_path):
    config = sac(members=4, pbt=PBT(tuned={"gamma": None}), tau=0.1)
    config = dataclasses.replace(config, schedule=((100, {"gamma": 0.5}),))
    config_file.write(tmp_path, config, "")
    assert config_file.read(tmp_path)[0] == config
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["hp"] == {"tau": 0.1}
    older = {k: v for k, v in saved.items() if k not in ("tuner", "pbt", "schedule")}
    assert config_file.parse(older).tuner is None


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
        ({"preset": {"gamma": 0.9}}, "preset = {'gamma': 0.9}: sac has none of this name"),
        ({"preset": np.zeros(2)}, "has none of this name; there is"),
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


def test_many_seeds_are_read_in_no_time():
    assert seed_list("0-19999") == tuple(range(20_000))
    with pytest.raises(ThespisError, match=r"seeds = 0 1 2 .* \.\.\.: 7 is there twice"):
        seed_list("0-19999 7")
