"""Which jobs there are: all combinations of a grid, or draws that anybody can repeat."""

from pathlib import Path

import pytest

from tests.sweeps.inline import TINY
from thespis.errors import ThespisError
from thespis.sweeps import plan as plans
from thespis.sweeps.samplers import sampler_of


def jobs(**given):
    tiny = {name: x for name, x in TINY.items() if name not in given.get("set", {})}
    plan = plans.make({"algo": "sac", "env": "jax:pendulum", **tiny, **given})
    return sampler_of(plan, Path()).known()


def test_a_grid_has_every_combination_with_all_seeds_inside_each_job():
    given = {"critic_lr": [1e-4, 1e-3], "batch_size": [16, 32]}
    found = jobs(algo="sac,td3", env="jax:pendulum,jax:pointmass", set=given, seeds="0-4")
    assert len(found) == 2 * 2 * 2 * 2
    assert len({job.name for job in found}) == len(found)
    assert {(j.algo, j.env, *j.choices.values()) for j in found} == {
        (algo, env, rate, batch)
        for algo in ("sac", "td3")
        for env in ("jax:pendulum", "jax:pointmass")
        for rate in (1e-4, 1e-3)
        for batch in (16, 32)
    }
    assert all(job.options["seeds"] == [0, 1, 2, 3, 4] for job in found)
    assert all(job.options["threads"] == job.options["devices"] == 1 for job in found)


def test_a_combination_that_cannot_work_is_refused_before_anything_runs():
    alone = {"buffer_size": [400, 200], "learning_starts": [100, 300]}  # each of them works
    with pytest.raises(ThespisError, match="learning_starts = 300 is more than buffer_size = 200"):
        jobs(set=alone, steps=400)


def test_too_many_jobs_are_refused():
    names = ("eval_freq", "log_freq", "checkpoint_freq", "eval_episodes", "envs")
    with pytest.raises(ThespisError, match="16,807 jobs"):
        jobs(set={name: list(range(1, 8)) for name in names})


def test_draws_follow_priors_and_ranges_and_can_be_repeated():
    given = {"critic_lr": "log:1e-4:1e-2", "gamma": "prior", "batch_size": [16, 32]}
    draw = lambda seed, trials=3: [
        job.choices for job in jobs(sampler="random", trials=trials, set=given, sampler_seed=seed)
    ]
    found = draw(0, 20)
    assert draw(0) == found[:3]
    assert draw(1) != found[:3]
    rates = sorted(choice["critic_lr"] for choice in found)
    assert 1e-4 <= rates[0] < 5e-4
    assert 2e-3 < rates[-1] <= 1e-2
    assert 4 <= sum(rate < 1e-3 for rate in rates) <= 16  # uniform in the logarithm
    assert all(0.9 <= choice["gamma"] <= 0.999 for choice in found)
    assert {choice["batch_size"] for choice in found} == {16, 32}


def test_all_environments_have_the_same_draws():
    first, second, *others = jobs(
        sampler="random", trials=1, set=["critic_lr"], env="jax:pendulum,jax:pointmass"
    )
    assert first.choices == second.choices
    assert first.env != second.env
    assert not others


def test_without_choices_all_hyper_parameters_are_drawn_but_those_given():
    (job,) = jobs(sampler="random", trials=1, gamma=0.9)
    assert {"actor_lr", "critic_lr", "tau"} <= {*job.choices}
    assert "gamma" not in job.choices
    assert job.options["gamma"] == 0.9
