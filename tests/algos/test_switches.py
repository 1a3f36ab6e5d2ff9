"""Critics, networks and optimisers by choice, each against an independent NumPy form."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import thespis
from tests.algos import reference, switched
from tests.small import arguments, differences
from thespis.algos import SAC, TD3
from thespis.core import Mean
from thespis.nn.networks import Network
from thespis.nn.train_state import TrainState

MORE = {"weight_decay": 0.3, "lr_end": 0.2, "schedule_updates": 10.0}
NOISE = {"noise": 0.1, "target_noise": 0.4, "noise_clip": 0.3}
BATCH = {"norm": "batch", "input_norm": "batch"}


def both(**choices) -> dict:
    """The same network for actor and critics."""
    return {"actor_network": Network(**choices), "critic_network": Network(**choices)}


def critic(**choices) -> dict:
    return {"critic_network": Network(**choices)}


SWITCHES = {
    "layer": both(norm="layer"),
    "rms": both(norm="rms"),
    "layer after": both(norm="layer", norm_place="after"),
    "final": both(final_norm="rms"),
    "elu": both(activation="elu"),
    "silu": both(activation="silu"),
    "orthogonal": both(init="orthogonal"),
    "batch": both(**BATCH),
    "batch, no input": both(norm="batch"),
    "batch of critics": critic(**BATCH),
    "batch after, no target": both(**BATCH, norm_place="after") | {"target_update": "none"},
    "renorm": both(**BATCH, renorm=0) | {"target_update": "none"},
    "renorm, later": both(**BATCH, renorm=9) | {"target_update": "none"},
    "unit": both(**BATCH, unit="weights"),
    "unit, hidden": both(**BATCH, unit="hidden"),
    "unit, all": both(**BATCH, unit="all", final_norm="rms"),
    "simba": both(body="simba", hidden=(3,), blocks=1, expansion=2, norm="layer"),
    "flash": both(body="flash", hidden=(3,), blocks=1, expansion=2, unit="all", **BATCH),
    "huber": {"head": "huber"},
    "projected": {"head": "categorical", "atoms": 5},
    "two-hot": {"head": "categorical", "atoms": 5, "categorical_target": "two-hot"},
    "hl-gauss": {"head": "categorical", "atoms": 5, "categorical_target": "hl-gauss"},
    "categorical mean": {
        "head": "categorical",
        "atoms": 5,
        "target_reduce": "mean",
        "actor_reduce": "mean",
    },
    "quantile": {"head": "quantile", "quantiles": 3},
    "truncated": {
        "head": "quantile",
        "quantiles": 3,
        "dropped_quantiles": 1,
        "target_reduce": "truncated",
        "actor_reduce": "mean",
    },
    "mean": {"critics": 3, "target_reduce": "mean", "actor_reduce": "mean"},
    "first": {"actor_reduce": "first"},
    "copy": {"target_update": "copy", "target_every": 3},
    "rarely": {"target_every": 3},
    "adamw": {"optimizer": "adamw"},
    "betas": {"adam_b1": 0.5, "adam_b2": 0.95},
    "clipped": {"max_grad_norm": 0.1},
    "linear": {"lr_schedule": "linear"},
    "cosine": {"lr_schedule": "cosine"},
    "drop truncated": both(**BATCH) | {"drop_truncated": True},
    "observations": both(norm="layer") | {"normalize_observations": True},
}
OF_SAC = {
    "tanh": {"std": "tanh", "log_std_range": (-3.0, 1.0)},
    "range": {"log_std_range": (-0.1, 0.1)},
    "every third": {"actor_every": 3},
    "actor first": {"order": "actor-first", "actor_every": 2},
}
LESS = {"silu", "batch, no input", "unit"}  # than "elu", "batch" and "unit, all" have
# Those that do other things at other updates.
TIMED = {"copy", "rarely", "linear", "cosine", "every third", "actor first"}


def slow_if(names, some) -> list:
    return [pytest.param(x, marks=[pytest.mark.slow] if x in some else []) for x in names]


def midway(algo, hp):
    """A state in training: moments, a target and running statistics of their own."""
    state = reference.drawn(algo, hp)

    def positive(path, x):
        name = jax.tree_util.keystr(path)
        if name.endswith(".var"):
            return jnp.asarray(np.abs(x) + np.float32(0.5))
        return jnp.asarray(np.float32(4)) if name.endswith(".updates") else x

    state = jax.tree_util.tree_map_with_path(positive, state)
    shapes = jax.eval_shape(algo.init, random.key(0), hp)

    def optimised(name):
        drawn, wanted = getattr(state, name), getattr(shapes, name)
        past = drawn.opt_state
        past = past if algo.max_grad_norm is None else (wanted.opt_state[0], past)
        return TrainState(drawn.params, past, wanted.optimizer)

    parts = {name: optimised(name) for name in ("actor", "critic")}
    return dataclasses.replace(state, **parts)


def compare(algo, hp, update, steps, monkeypatch):
    state, batch = midway(algo, hp), reference.transitions()
    noise = reference.fixed_noise(monkeypatch)
    update_of = reference.quick(algo.update)
    for step in steps:
        outcome = update_of(state, hp, batch, random.key(2), np.int32(step))
        compare_one(algo, hp, update, step, state, batch, noise, outcome)


def compare_one(algo, hp, update, step, state, batch, noise, outcome):
    new, metrics, priorities = outcome
    inputs = switched.numpy(state), switched.plain(hp), switched.plain(batch)
    state_, metrics_, priorities_ = update(algo, *inputs, noise, step)
    found = switched.numpy(new)
    assert found.keys() == state_.keys()
    for name in state_:
        ours, theirs = (jax.tree_util.tree_leaves_with_path(x[name]) for x in (found, state_))
        assert [path for path, _ in ours] == [path for path, _ in theirs], name
        for (path, a), (_, w) in zip(ours, theirs, strict=True):
            where = name + jax.tree_util.keystr(path)
            np.testing.assert_allclose(a, w, 3e-4, 3e-5, err_msg=where)
    for name, wanted in metrics_.items():
        metric = metrics[name]
        value = metric.total if isinstance(metric, Mean) else metric
        np.testing.assert_allclose(value, wanted, 1e-4, 1e-5, err_msg=name)
    valid = batch.valid > 0
    np.testing.assert_allclose(priorities[valid], priorities_[valid], 2e-4, 1e-6)


@pytest.mark.cases(18)
@pytest.mark.parametrize("name", slow_if(SWITCHES | OF_SAC, LESS))
def test_an_update_of_sac_is_what_numpy_computes(name, monkeypatch):
    options = (SWITCHES | OF_SAC)[name]
    algo = SAC(reference.spec(), **{"hidden": (3,)} | options)
    hp = reference.scalars(SAC.Hyper, reference.HYPER | MORE)
    compare(algo, hp, switched.sac, (4, 5) if name in TIMED else (5,), monkeypatch)


OF_TD3 = ("layer", "batch", "batch after, no target", "unit, all", "projected", "quantile", "adamw")


OFTEN = ("batch after, no target", "quantile", "smallest")  # the rest is SAC's own code


@pytest.mark.parametrize("name", slow_if((*OF_TD3, "smallest"), {*OF_TD3} - {*OFTEN}))
def test_an_update_of_td3_is_what_numpy_computes(name, monkeypatch):
    options = (SWITCHES | {"smallest": {"actor_reduce": "min"}})[name]
    algo = TD3(reference.spec(), **{"hidden": (3,)} | options)
    known = {n: x for n, x in reference.HYPER.items() if n in reference.declared(TD3.Hyper)}
    hp = reference.scalars(TD3.Hyper, known | NOISE | MORE)
    compare(algo, hp, switched.td3, (1,), monkeypatch)


# --- what depends on more than one update ---------------------------------------------------


def test_acting_does_not_change_statistics():
    algo = SAC(reference.spec(), hidden=(3,), **both(**BATCH))
    hp = reference.scalars(SAC.Hyper, reference.HYPER)
    state = midway(algo, hp)
    act = lambda obs: algo.act(state, hp, None, obs, random.key(0), jnp.int32(0), "greedy")[0]
    obs = reference.transitions().obs
    np.testing.assert_allclose(act(obs)[:1], act(obs[:1]), rtol=1e-4, atol=1e-5)


def test_a_reset_redraws_networks_and_keeps_statistics():
    algo = SAC(
        reference.spec(), hidden=(3,), normalize_observations=True, reward_norm="std", resets=(9,)
    )
    hp = reference.scalars(SAC.Hyper, reference.HYPER)
    state = midway(algo, hp)
    new = algo.reset(state, hp, random.key(4))
    for name in ("stats", "reward_stats"):
        assert reference.difference(getattr(new, name), getattr(state, name)) == 0
    fresh = algo.init(random.key(4), hp)
    for name in ("actor", "critic", "target", "temperature"):
        assert reference.difference(getattr(new, name), getattr(fresh, name)) == 0


def tiny(preset: str, **options) -> dict:
    """Returns a preset with the smallest networks, one environment and an update per step."""
    small = {"hidden": (4,), "blocks": 1, "expansion": 2}
    sizes = {f"{who}.{name}": x for who in ("actor", "critic") for name, x in small.items()}
    once = {"updates_per_step": 1, "envs": 1, "buffer_size": 200, "schedule_updates": 100}
    return {"preset": preset, "atoms": 5, "quantiles": 5, **once, **sizes, **options}


# The first is for `make test`, the others are thorough.
EXACT = {
    "crossq": ("sac", tiny("crossq-cpu", **{"critic.renorm": 100})),
    "fast": ("sac", tiny("fast")),
    "droq": ("sac", tiny("droq", **{"critic.dropout": 0.1})),
    "redq": ("sac", tiny("redq", critics=3, **{"critic.dropout": 0.1})),
    "tqc": ("sac", tiny("tqc", prioritized_replay=True)),
    "simba": ("sac", tiny("simba-cpu", resets=(100,))),
    "simbav2": ("sac", tiny("simbav2", n_step=2)),
    "xqc": ("sac", tiny("xqc", target_update="copy", target_every=7)),
    "flash": (
        "sac",
        tiny("flashsac-cpu", prioritized_replay=True, n_step=2, **{"critic.renorm": 100}),
    ),
    "fast-sac": ("sac", tiny("fast-sac", categorical_target="hl-gauss", max_grad_norm=1.0)),
    "fast of TD3": ("td3", tiny("fast")),
    "fast-td3": ("td3", tiny("fast-td3", prioritized_replay=True)),
}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.cases(1)
@pytest.mark.parametrize(("algo", "options"), EXACT.values(), ids=EXACT)
def test_runs_are_exact_alone_together_and_resumed(algo, options, tmp_path):
    """A member equals its run alone, and stop and continue equals never stopped, bit for bit.

    What was planned is what is there, and the exported policy acts alike.
    """
    given = arguments(steps=160, learning_starts=60, eval_freq=80, checkpoint_freq=80) | options
    pair = thespis.train(algo, **given, seeds=(0, 1), out=tmp_path / "pair")
    given |= {"steps": 80}
    stopped = thespis.train(algo, **given, seeds=(1,), out=tmp_path / "alone")
    again = thespis.resume(stopped.path, steps=160, progress=False)
    assert differences(pair.path, again.path, member=1) == []
    del given["progress"]
    planned = thespis.plan(algo, probe=False, **given, seeds=(1,))
    assert planned.member.state == sum(x.nbytes for x in jax.tree.leaves(again.state()[0]))
    exported = again.export(format="numpy", folder=tmp_path / "policy")
    assert exported["largest_difference"]["numpy"] < 1e-5
