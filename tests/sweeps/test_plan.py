"""What a sweep is asked for: texts, dicts and files say the same, and mistakes are refused."""

import tomllib

import pytest

from thespis.errors import ThespisError
from thespis.sweeps import plan as plans

ASKED = {"algo": "sac", "env": "jax:pendulum", "steps": 2000}


def test_texts_and_dicts_say_the_same():
    text = plans.choices_of(["critic_lr=3e-4,1e-3", "hidden=8 8,16 16", "norm=none", "gamma"])
    told = {"critic-lr": [3e-4, 1e-3], "hidden": [(8, 8), (16, 16)], "norm": "none"}
    assert text == plans.choices_of(told | {"hp.gamma": "prior"})
    assert text["hidden"] == [[8, 8], [16, 16]]


def test_what_was_asked_is_written_and_read():
    more = {"set": {"hidden": [(8, 8), (16,)], "critic_lr": "log:1e-4:1e-3"}, "seeds": "0-2"}
    plan = plans.make(ASKED | more | {"sampler": "random", "trials": 3, "pbt": {"interval": 100}})
    assert plans.make(tomllib.loads(plans.to_toml(plan.asked))) == plan
    assert plan.seeds == (0, 1, 2)
    assert plan.options == {"steps": 2000, "pbt.interval": 100}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"algo": None}, "algo is missing"),
        ({"algo": "sac,tdd3"}, "unknown algorithm 'tdd3'; did you mean td3"),
        ({"env": "jax:pendulums"}, "did you mean jax:pendulum"),
        ({"env": object()}, "jobs are other processes; give a name"),
        ({"env": "jax:pendulum,jax:pendulum"}, "is there twice"),
        ({"set": "critc_lr=1"}, "unknown option 'critc_lr'; did you mean critic_lr"),
        ({"set": {"critic_lr": [1e-3, -1]}}, "critic_lr = -1 is out of range"),
        ({"set": {"critic_lr": [1e-3, 1e-3]}}, "is there twice"),
        ({"set": "batch_size=64,many"}, "batch_size = many: give a whole number"),
        ({"set": "preset=fastest", "algo": "sac,td3"}, "sac has no preset of this name"),
        ({"set": "seed=1,2"}, "members of every job"),
        ({"set": "critic_lr=prior"}, "give values, or the sampler random"),
        ({"set": "steps=1000", "steps": 10}, "a choice too"),
        ({"set": "hidden=prior", "sampler": "random", "trials": 2}, "only a hyper-parameter"),
        ({"set": "gamma=log:1:2", "sampler": "random", "trials": 2}, "out of range"),
        ({"sampler": "random"}, "say how many trials"),
        ({"trials": 3}, "a grid tries all"),
        ({"sampler": "optuna", "trials": 2, "env": "jax:pendulum,jax:cartpole"}, "one environment"),
        ({"sampler": "best"}, "give one of grid, random, optuna"),
        ({"stepz": 10}, "unknown option 'stepz'"),
        ({"callbacks": ["a:B"]}, "have no callbacks"),
        ({"gamma": len}, "give text or numbers"),
    ],
)
def test_mistakes_are_refused_in_one_line(given, message):
    with pytest.raises(ThespisError, match=message) as refused:
        plans.make(ASKED | given)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "line", ['env = "os:Thing"', 'algo = ["sac", "os:Thing"]', '[set]\neval_env = ["os:Thing"]']
)
def test_code_that_a_file_names_must_be_trusted(line, tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(line)
    with pytest.raises(ThespisError, match="names code: .*os:Thing imports os"):
        plans.refuse_code(path, plans.read(path), False)
    plans.refuse_code(path, plans.read(path), True)
