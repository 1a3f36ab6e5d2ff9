"""The file that `thespis config` prints holds every option, and stands for the same run."""

import tomllib

import pytest

from thespis.algos import ALGORITHMS
from thespis.runs import option_file
from thespis.runs.config import Config, make
from thespis.runs.option_toml import toml, written

CASES = [(algo, preset) for algo, x in ALGORITHMS.items() for preset in (None, *x.presets)]


def back(path, text: str, **given) -> Config:
    path.write_text(text)
    return make(*option_file.merge(None, given, path))


@pytest.mark.cases(20)
@pytest.mark.parametrize(("algo", "preset"), CASES)
@pytest.mark.parametrize("tuned", [False, True])
def test_it_gives_the_same_config(tmp_path, algo, preset, tuned):
    options = {"env": "jax:pendulum", "steps": 10**6, "buffer_size": 10**6}
    options |= {"preset": preset} if preset else {}
    options |= {"demos": "expert.npz"} if algo == "sqil" else {}
    options |= {"members": 8, "pbt": True, "pbt.tuned": "gamma"} if tuned else {}
    assert back(tmp_path / "run.toml", written(algo, options)) == make(algo, options)


def test_it_names_every_option_with_its_help():
    text = written("sac", {"hidden": (8, 4), "actor_lr": 1e-5})
    lines = [line.removeprefix("# ") for line in text.splitlines()]
    assert "# Discount factor.\ngamma = 0.99" in text
    for start in ("algo =", "env =", "steps =", "eval_freq =", "batch_size =", "gamma =", "norm ="):
        assert any(line.startswith(start) for line in lines), start
    content = tomllib.loads(text)
    assert content["hidden"] == [8, 4]
    assert content["hp"]["actor_lr"] == 1e-5
    assert content["critic"]["norm"] == "none"
    assert "env" not in content  # none was given: it is there as a comment


def test_what_follows_from_the_steps_follows_from_those_that_are_changed(tmp_path):
    text = written("sac", {"env": "jax:pendulum"})
    assert back(tmp_path / "run.toml", text, steps=2000).checkpoint_freq == 200


def test_nothing_can_be_chosen_where_the_preset_has_something(tmp_path):
    preset = next(
        n for n, x in ALGORITHMS["sac"].presets.items() if "learning_starts" in x["train"]
    )
    options = {"env": "jax:pendulum", "preset": preset, "learning_starts": None}
    text = written("sac", options)
    assert 'learning_starts = "none"' in text
    assert back(tmp_path / "run.toml", text) == make("sac", options)


@pytest.mark.parametrize(
    "value", ['"', "a\\b", "\x7f\n", "é 語", [1, 2.5], True, 10**6, 1e-7, "x=y"]
)
def test_values_are_read_as_they_were_written(value):
    assert tomllib.loads(f"x = {toml(value)}") == {"x": value}
