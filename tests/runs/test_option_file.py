"""Options from a file: below those that are given, above a preset, and data only."""

import json
import os
import sys

import pytest

import thespis
from thespis.errors import ThespisError
from thespis.runs import config_file, option_file, trust
from thespis.runs.config import Config, make
from thespis.tuning import PBT


@pytest.fixture
def read(tmp_path):
    """What a file with this content and options beside it stand for."""

    def config(text: str, algo: str | None = "sac", **given) -> Config:
        path = tmp_path / "run.toml"
        path.write_text(text)
        return make(*option_file.merge(algo, {"env": "jax:pendulum"} | given, path))

    return config


def test_names_may_be_flat_dotted_or_in_tables(read):
    config = read("""
        steps = 5_000
        batch-size = 32
        hp.gamma = 0.9
        "critic.norm" = "layer"
        seeds = "0-2"
        [actor]
        norm = "rms"
    """)
    assert (config.steps, config.seeds, config.hp["gamma"]) == (5000, (0, 1, 2), 0.9)
    chosen = {"batch_size": 32, "critic.norm": "layer", "actor.norm": "rms"}
    assert {name: config.options[name] for name in chosen} == chosen


def test_what_is_given_wins_over_the_file_and_the_file_over_the_preset(read):
    text = 'preset = "qdax"\ngamma = 0.5\ntau = 0.25\nn_envs = 4'
    config = read(text, tau=0.125)
    assert config.options["std"] == "softplus"  # the preset's
    assert (config.hp["gamma"], config.hp["tau"], config.envs) == (0.5, 0.125, 4)


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        ("actor_lr = 1.0", {"learning_rate": 0.5}, {"actor_lr": 0.5, "critic_lr": 0.5}),
        ("learning_rate = 1.0", {"actor_lr": 0.5}, {"actor_lr": 0.5, "critic_lr": 1.0}),
        ("hp.gamma = 0.5", {"gamma": 0.25}, {"gamma": 0.25}),
        ("gamma = 0.5", {"hp.gamma": 0.25}, {"gamma": 0.25}),
        ("ent_coef = 0.5", {"alpha": 0.25}, {"alpha": 0.25, "temperature": "fixed"}),
        ("total_timesteps = 9000", {"steps": 5000}, {"steps": 5000}),
        ("gradient_steps = 1", {"envs": 4}, {"updates_per_step": 0.25}),
        ("envs = 4", {"gradient_steps": 1}, {"updates_per_step": 0.25}),
        ("gradient_steps = 1\nenvs = 4", {"updates_per_step": 2}, {"updates_per_step": 2}),
        ("seeds = [3, 4]", {"seed": 7}, {"seeds": (7,)}),
        ("seed = 3\nmembers = 2", {"seed": 7}, {"seeds": (7, 8)}),
        ("seed = 3", {"members": 2}, {"seeds": (3, 4)}),
        ("seed = 3\nmembers = 2", {"seeds": "5-6"}, {"seeds": (5, 6)}),
        ("hidden = [8]", {"algo.hidden": (4,)}, {"hidden": (4,)}),
    ],
)
def test_whatever_names_are_used_the_same_thing_is_given_once(read, text, given, expected):
    config = read(text, **given)
    found = vars(config) | config.options | config.hp
    assert {name: found[name] for name in expected} == expected


def test_a_tuner_of_the_file_may_be_changed_replaced_or_dropped(read):
    text = "members = 8\n[pbt]\ninterval = 500\nresample = 0.5"
    assert read(text).pbt["resample"] == 0.5
    assert read(text, **{"pbt.interval": 300}).pbt["interval"] == 300
    assert read(text, pbt=PBT(interval=200)).pbt["interval"] == 200
    other = read(text, tuner="none")
    assert (other.tuner, other.pbt["interval"]) == ("none", 500)
    assert "resample" not in other.pbt
    assert read(text, pbt=False).tuner is None


def test_the_file_may_name_the_algorithm_and_the_command_wins(read):
    assert read('algo = "td3"', algo=None).algo == "td3"
    assert read('algo = "td3"').algo == "sac"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bach_size = 3", "run.toml: unknown option 'bach_size'; did you mean batch_size"),
        ("[hp]\ngama = 3", "run.toml: unknown hyper-parameter 'hp.gama'; did you mean gamma"),
        (
            "[critc]\nnorm = 'rms'",
            "run.toml: unknown option 'critc.norm'; did you mean critic.norm",
        ),
        ("steps = true", "run.toml: steps = True: give a whole number"),
        ("gamma = 'high'", "run.toml: hyper-parameter gamma = high: give a number"),
        ("eval_env = 3", "run.toml: eval_env = 3: give text"),
        ("schedule = 3", "schedule = 3: give [step, values] pairs"),
        ("schedule = [[3, {gama = 1}]]", "unknown hyper-parameter 'gama'; did you mean gamma"),
        ("{" + '"a": {' * 900, "run.toml is neither valid TOML nor JSON"),
        ('{"a": ' * 900 + "1" + "}" * 900, "run.toml"),
        ("trust = true", "run.toml: trust is yours to give"),
        ("steps = ", "run.toml is neither valid TOML nor JSON"),
        ("{", "run.toml is neither valid TOML nor JSON"),
        ("json = true", "run.toml: unknown option 'json'"),
    ],
)
def test_one_line_says_what_is_wrong_with_a_file(read, text, message):
    with pytest.raises(ThespisError) as caught:
        read(text)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_or_names_no_algorithm_is_refused(tmp_path):
    with pytest.raises(ThespisError, match="cannot read nowhere.toml: No such file"):
        thespis.train("sac", config="nowhere.toml")
    (tmp_path / "run.toml").write_text("steps = 3")
    with pytest.raises(ThespisError, match="has no algo: name the algorithm first"):
        thespis.train(config=tmp_path / "run.toml")
    with pytest.raises(ThespisError, match="name the algorithm, or a config file that does"):
        thespis.train()


@pytest.mark.parametrize("preset", [None, "crossq"])
@pytest.mark.parametrize("tuned", [{}, {"members": 4, "tuner": "pb2", "pbt.best": 1}])
def test_the_config_of_a_run_is_accepted_as_it_is(tmp_path, preset, tuned):
    options = {"env": "jax:pendulum", "preset": preset, "name": "{env}", "tags": ("a", "b")}
    config = make("sac", options | tuned)
    config_file.write(tmp_path, config, "thespis train")
    assert make(*option_file.merge(None, {}, tmp_path)) == config
    assert make(*option_file.merge("sac", {"seeds": "5-8"}, tmp_path / "config.json")).seeds[0] == 5


def test_a_schedule_of_a_rerun_is_kept(tmp_path):
    config = make("sac", {"env": "jax:pendulum", "schedule": [(100, {"gamma": 0.5})]})
    config_file.write(tmp_path, config, "thespis rerun")
    assert make(*option_file.merge(None, {}, tmp_path)).schedule == ((100, {"gamma": 0.5}),)


def test_an_environment_that_was_an_object_has_to_be_given_again(tmp_path):
    config_file.write(tmp_path, make("sac", {"env": lambda: None} | {"env": "jax:pendulum"}), "")
    saved = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(saved | {"env_given": True}))
    with pytest.raises(ThespisError, match="env is missing"):
        make(*option_file.merge(None, {}, tmp_path))


# --- code -----------------------------------------------------------------------------------

CODE = "import pathlib\npathlib.Path('imported').touch()\n"


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A module that tells when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "stranger.py").write_text(CODE)
    yield tmp_path
    sys.modules.pop("stranger", None)


@pytest.mark.parametrize(
    "text",
    [
        'env = "stranger:Task"',
        'env = "jax:pendulum"\neval_env = "stranger:Task"',
        'algo = "stranger:SAC"\nenv = "jax:pendulum"',
        'algo = "dads"\nenv = "jax:pendulum"\ndescriptor = "stranger:where"',
        '{"algo": "sac", "env": "stranger:Task", "seeds": [0], "options": {}}',
        'env = "jax:pendulum"\ncallbacks = ["stranger:Watch"]',
        'env = "jax:pendulum"\ncallbacks = "stranger:Watch"',
    ],
)
def test_code_that_a_file_names_is_not_imported(stranger, text):
    (stranger / "run.toml").write_text(text)
    algo = None if "algo" in text else "sac"
    for call in (thespis.train, thespis.plan):
        with pytest.raises(ThespisError, match="names code: .* imports stranger from .*--trust"):
            call(algo, config="run.toml", steps=2000)
    assert not (stranger / "imported").exists()


def test_code_may_be_named_beside_the_file_or_trusted(stranger):
    (stranger / "run.toml").write_text('env = "stranger:Task"')
    options = {"env": "jax:pendulum"}
    assert make(*option_file.merge("sac", options, "run.toml")).env == "jax:pendulum"
    assert make(*option_file.merge("sac", {"trust": True}, "run.toml")).env == "stranger:Task"
    with pytest.raises(ThespisError, match="names code"):
        option_file.merge("sac", {"trust": "false"}, "run.toml")


def test_callbacks_of_a_file_are_those_of_the_run(stranger):
    text = 'env = "jax:pendulum"\ncallbacks = ["stranger:Watch"]'
    (stranger / "run.toml").write_text(text)
    merged = option_file.merge("sac", {"trust": True}, "run.toml")
    assert make(*merged).callbacks == ("stranger:Watch",)


@pytest.mark.usefixtures("undrawn")
def test_callbacks_that_are_passed_replace_those_of_the_file(stranger):
    text = 'env = "jax:pendulum"\ncallbacks = ["stranger:Watch"]\nout = "there"'
    (stranger / "run.toml").write_text(text)
    short = {"steps": 40, "hidden": (4,), "updates_per_step": 0, "eval_episodes": 1}
    run = thespis.train("sac", config="run.toml", callbacks=[], progress=False, **short)
    assert (run.config.callbacks, run.path.parts[0]) == ((), "there")
    planned = thespis.plan("sac", config="run.toml", callbacks=[], out="here", probe=False, **short)
    assert planned.config.callbacks == ()
    assert not (stranger / "imported").exists()


def test_the_config_of_an_own_run_may_name_code(stranger):
    config_file.write(stranger, make("sac", {"env": "stranger:Task"}), "")
    trust.remember(stranger)
    assert make(*option_file.merge(None, {}, stranger)).env == "stranger:Task"


@pytest.mark.posix
def test_nobody_waits_for_a_pipe_in_the_folder_of_a_run(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ThespisError, match="cannot read .*config.json: it is not a regular file"):
        option_file.read(tmp_path)
