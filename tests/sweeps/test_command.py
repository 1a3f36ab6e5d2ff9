"""The command of a job makes the same run as the job."""

import dataclasses

from tests.sweeps.inline import TINY
from thespis.cli.training import read_training
from thespis.runs import config
from thespis.sweeps import plan as plans
from thespis.sweeps.command import words


def test_the_command_makes_the_same_run():
    choices = {
        "critic_lr": 3e-4,
        "hidden": [8, 16],
        "critic.norm": "layer",
        "importance_weights": False,
    }
    given = TINY | {"seeds": (3, 5), "preset": "simba"}
    del given["hidden"]
    plan = plans.make({"algo": "sac", "env": "jax:pendulum", **given})
    job = plan.job(0, "sac", "jax:pendulum", choices)
    command, *rest = words(job)
    algo, typed = read_training(command, rest, [])
    same = dataclasses.replace(config.make(algo, typed), threads=1, devices=1)
    assert same == config.make("sac", {"env": job.env} | job.options)
    assert same.hp["critic_lr"] == 3e-4
    assert same.seeds == (3, 5)
