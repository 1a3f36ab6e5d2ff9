"""A config is read from its file as it was written, and checked."""

import dataclasses
import json

import pytest

from tests.runs.test_config import sac
from tests.small import RUN, Toy
from thespis.core import ThespisError
from thespis.runs import config_file
from thespis.runs.config import make
from thespis.runs.formats import FORMAT
from thespis.tuning import PBT


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


def test_a_config_of_a_population_is_read_as_it_was_written(tmp_path):
    config = sac(members=4, pbt=PBT(tuned={"gamma": None}), tau=0.1)
    config = dataclasses.replace(config, schedule=((100, {"gamma": 0.5}),))
    config_file.write(tmp_path, config, "")
    assert config_file.read(tmp_path)[0] == config
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["hp"] == {"tau": 0.1}
    older = {k: v for k, v in saved.items() if k not in ("tuner", "pbt", "schedule")}
    assert config_file.parse(older).tuner is None
