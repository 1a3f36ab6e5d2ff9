"""What a sweep is asked for: texts, dicts and files say the same, and mistakes are refused."""

import os
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
        ({"set": ["gamma=0.9", "gamma=0.99"]}, "set gamma is there twice: give all its values"),
        ({"set": ["critic-lr=1e-4", "critic_lr=1e-3"]}, "set critic_lr is there twice"),
        ({"set": ["critic_lr=1e-4", "hp.critic_lr=1e-3"]}, "set critic_lr is there twice"),
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
        ({"set": 3}, "set = 3: give NAME=VALUE"),
        ({"set": [1]}, "give NAME=VALUE"),
        ({"seeds": "9" * 5000}, "give a range such as 0-4"),
        ({"trust": True}, "yours to give"),
        ({"train.env": "jax:cartpole"}, "give several environments to the sweep"),
    ],
)
def test_mistakes_are_refused_in_one_line(given, message):
    with pytest.raises(ThespisError, match=message) as refused:
        plans.make(ASKED | given)
    assert "\n" not in str(refused.value)


def test_a_job_takes_the_cores_of_its_largest_choice():
    assert plans.make(ASKED).cores == 1
    assert plans.make(ASKED | {"set": "threads=1,4,2"}).cores == 4
    assert plans.make(ASKED | {"threads": 3, "set": "devices=1,2", "seeds": "0-1"}).cores == 6
    assert plans.make(ASKED | {"train.threads": 3, "set": "gamma=0.9,0.99"}).cores == 3


@pytest.mark.parametrize(
    "line",
    [
        'env = "os:Thing-v0"',
        'env = "jax:pendulum, os:Thing-v0"',
        'algo = ["sac", "os:Thing"]',
        'algo = " os:Thing"',
        'eval-env = "os:Thing-v0"',
        '[train]\neval_env = "os:Thing-v0"',
        '[train.train]\neval-env = "os:Thing-v0"',
        '[set]\neval_env = ["os:Thing"]',
        '[set]\neval-env = "os:Thing-v0"',
        '[set]\ndescriptor = [["os:thing"]]',
        'set = "descriptor= os:thing"',
    ],
)
def test_code_that_a_file_names_must_be_trusted(line, tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(line)
    with pytest.raises(ThespisError, match="names code: .*os:[tT]hing.* imports os"):
        plans.refuse_code(path, plans.read(path), False)
    plans.refuse_code(path, plans.read(path), True)


@pytest.mark.parametrize(
    "line",
    [
        'ray = "10.0.0.1:6379"',
        '[slurm]\nlocal_setup = ["touch pwned"]',
        'slurm = "slurm_srun_args=--prolog=pwned"',
        '[slurm]\nslurm_partition = "gpu\\ntouch pwned"',
    ],
)
def test_a_file_cannot_say_by_whom_commands_are_run(line, tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(line)
    with pytest.raises(ThespisError, match="may run commands of others") as refused:
        plans.refuse_code(path, plans.read(path), False)
    assert "\n" not in str(refused.value)
    plans.refuse_code(path, plans.read(path), True)
    usual = {"slurm": {"slurm_partition": "gpu", "timeout_min": 60}, "ray": "auto"}
    plans.refuse_code(path, usual, False)


@pytest.mark.posix
def test_a_file_is_read_if_it_is_a_file_of_reasonable_size(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")  # which would be waited for
    with pytest.raises(ThespisError, match="not a regular file"):
        plans.read(tmp_path / "pipe.toml")
    with (tmp_path / "huge.toml").open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(ThespisError, match="cannot read .*huge.toml: it has 1,073,741,824 bytes"):
        plans.read(tmp_path / "huge.toml")
    (tmp_path / "mine.toml").write_text("steps = 5")
    (tmp_path / "link.toml").symlink_to("mine.toml")  # it is the user who names it
    assert plans.read(tmp_path / "link.toml") == {"steps": 5}
