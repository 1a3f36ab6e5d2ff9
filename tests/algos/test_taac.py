"""TAAC against an independent NumPy form, and what users rely on beyond one update."""

import dataclasses
import math
from fractions import Fraction
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random

import thespis
from tests.algos import reference, taac_reference
from thespis import hyper
from thespis.algos import ALGORITHMS, TAAC, TAACL, TAACQ
from thespis.algos.taac import Extra, Memory, action_entropy, switch_entropy
from thespis.core import Box, Discrete, Row, Spec, ThespisError
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import Pendulum
from thespis.loop import DeviceDriver, Loop
from thespis.replay import Replay
from thespis.runs import config as configs

HYPER = reference.HYPER | {"reward_clip": 1.1, "target_switch_entropy": 0.4}
KINDS = {"taac": TAAC, "taac-l": TAACL, "taac-q": TAACQ}


def make(Algorithm=TAAC, action=2, reward_dim=None, **options) -> TAAC:
    spec = dataclasses.replace(reference.spec(action=action), reward_dim=reward_dim)
    return Algorithm(spec, **({"hidden": (4,)} | options))


def scalars(values=HYPER):
    return reference.scalars(TAAC.Hyper, values)


def midway(algo: TAAC, hp):
    """A state as found in training: moments, a target and temperatures of their own."""
    state = algo.init(random.key(0), hp)
    log_alpha = jnp.log(jnp.asarray([0.25, 0.2], jnp.float32))
    state = dataclasses.replace(
        state,
        actor=reference.aged(state.actor, 1),
        critic=reference.aged(state.critic, 2),
        target=algo.init(random.key(1), hp).target,
        temperature=reference.aged(type(state.temperature).of(log_alpha), 3),
    )
    rng = np.random.default_rng(7)
    obs = jnp.asarray(rng.normal(2, 3, (1, 40, 2)), jnp.float32)
    shape = (1, 40) if algo.spec.reward_dim is None else (1, 40, algo.spec.reward_dim)
    reward = jnp.asarray(rng.normal(1, 2, shape), jnp.float32)
    no, action = jnp.zeros((1, 40), bool), jnp.zeros((1, 40, 1))
    return algo.observe(state, Row(obs, reward, no, no, action))


def updated(algo, state=None, hp=None, batch=None, key=2, step=0):
    hp = scalars() if hp is None else hp
    state = midway(algo, hp) if state is None else state
    batch = taac_reference.windows(algo) if batch is None else batch
    return update_of(algo)(state, hp, batch, random.key(key), jnp.int32(step))


def update_of(algo):
    """Compiled in haste where shapes are not the usual ones: then one program costs least."""
    usual = {"spec": make().spec, "n_step": 3, "encoder": (), "critics": 2, "hidden": (4,)}
    if type(algo) is TAAC and all(getattr(algo, k) == v for k, v in usual.items()):
        return algo.update
    return jax.jit(algo.update, compiler_options={"xla_backend_optimization_level": 0})


# --- one update -----------------------------------------------------------------------------

WEIGHED = {"reward_weights": (0.7, -1.3, 0.0), "gammas": (0.5, 0.9, 1.0)}
OPTIONS = [
    {},
    {"action": 1, "hidden": (4, 4), "critic_hidden": (4,), "n_step": 1},
    {"n_step": 5, "critics": 3},
    {"returns": "one-step", "first": "zero"},
    {"returns": "multi-step", "first": "random"},
    {"advantage_clip": (0.0, None)},
    {"advantage_clip": (None, 0.1), "min_prob": (0.2,)},
    {"advantage_clip": (-0.05, 0.02), "min_prob": (0.05, 0.184)},
    {"embed": False, "critics": 1},
    {"encoder": (4, 3)},
    {"normalize_rewards": True, "normalize_observations": True},
    {"ignore_done": True},
    {"drop_truncated": True},
    {"reward_dim": 3, **WEIGHED},
    {"reward_dim": 2, "normalize_rewards": True},
    {"Algorithm": TAACL},
    {"Algorithm": TAACL, "inverse_mode": False},
    {"Algorithm": TAACQ, "embed": False},
    {"Algorithm": TAACQ, "inverse_mode": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=reference.named)
def test_update_is_what_numpy_computes(options, monkeypatch):
    algo, hp = make(**options), scalars()
    state, batch = midway(algo, hp), taac_reference.windows(algo)
    noise, fresh = taac_reference.fixed_draws(monkeypatch, algo)

    new, metrics, priorities = updated(algo, state, hp, batch)

    inputs = (taac_reference.plain(x) for x in (state, hp, batch))
    state_, metrics_, priorities_ = taac_reference.taac(algo, *inputs, noise, fresh)
    taac_reference.close(new, state_)
    assert metrics.keys() == metrics_.keys()
    for name, value in metrics_.items():
        got = metrics[name]
        if name in ("repeat_rate", "run_length"):  # a mean that not every batch has
            got, value = got.total / jnp.maximum(got.count, 1), value or 0
        np.testing.assert_allclose(got, value, 2e-4, 2e-5, err_msg=name)
    np.testing.assert_allclose(priorities, priorities_, 2e-4)


def test_the_actor_climbs_the_chosen_value_and_entropy():
    """The paper's surrogate, with the critics' slope in place of the critics, moves it alike."""
    algo, hp = make(), scalars()
    state, batch = midway(algo, hp), taac_reference.windows(algo)
    extra = batch.rows.extra
    obs = batch.rows.obs
    valid = batch.valid[None] * (1.0 - batch.rows.final.astype(jnp.float32))
    alpha = jnp.exp(state.temperature.params)

    def loss(actor, surrogate):
        noise_key, _ = random.split(random.key(2))
        action, log_p = algo.policy(state, actor, obs, extra.last).sample(noise_key)
        held = jax.lax.stop_gradient
        q = lambda a: algo.worth(state.critic.params, obs, a)
        beta = held(jnp.exp(algo.log_beta(state, q(extra.last), q(action))[..., 1]))
        beta = jnp.where(extra.repeats == 0, 1.0, beta)
        if surrogate:
            slope = held(jax.grad(lambda a: (beta * q(a)).sum())(action))
            gain = -0.5 * jnp.square(held(action + slope) - action).sum(-1)
        else:
            gain = beta * q(action)
        return ((alpha[1] * log_p - gain) * valid).sum() / valid.sum()

    slopes = [jax.grad(loss)(state.actor.params, surrogate) for surrogate in (True, False)]
    assert reference.difference(*slopes) < 1e-6
    assert reference.difference(slopes[0], jax.tree.map(jnp.zeros_like, slopes[0])) > 1e-2
    descended, _ = state.actor.descend(lambda a: (loss(a, True), None), hp.actor_lr)
    assert reference.difference(updated(algo)[0].actor, descended) < 1e-5


def test_a_common_optimiser_is_separate_ones_at_one_rate():
    """Adam works number by number, and no loss reaches into another's parameters."""
    algo = make()
    rates = {"actor_lr": 0.04, "critic_lr": 0.04, "alpha_lr": 0.04}
    hp = scalars(HYPER | rates)
    state = midway(algo, hp)
    parts = ("actor", "critic", "temperature")
    alike = {p: dataclasses.replace(getattr(state, p), count=jnp.int32(3)) for p in parts}
    state = dataclasses.replace(state, **alike)
    separate, _, _ = updated(algo, state, hp)

    spied = []

    class Spy(type(state.actor)):
        def descend(self, loss, lr):
            spied.append(loss)
            return super().descend(loss, lr)

    updated(algo, dataclasses.replace(state, **{p: Spy(**vars(alike[p])) for p in parts}), hp)
    # In the order of the update: actor, critic, temperatures.
    of = lambda what: [getattr(alike[p], what) for p in parts]
    joint = type(state.actor)(*(of(x) for x in ("params", "first", "second")), jnp.int32(3))
    total = lambda all_: (sum(loss(p)[0] for p, loss in zip(all_, spied)), None)
    with jax.debug_key_reuse(False):  # the same proposals once more
        joint, _ = joint.descend(total, 0.04)
    for part, params in zip(parts, joint.params):
        assert reference.difference(getattr(separate, part).params, params) < 1e-6


def test_a_batch_without_a_row_to_learn_from_stays_finite():
    algo = make()
    batch = taac_reference.windows(algo)
    none = dataclasses.replace(batch, valid=jnp.zeros_like(batch.valid))
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(updated(algo, batch=none)))


def test_the_target_follows_at_its_period():
    algo = make(target_period=3)
    state = midway(algo, scalars())
    moved = [
        reference.difference(updated(algo, state, step=i)[0].target, state.target) > 0
        for i in range(6)
    ]
    assert moved == [False, False, True, False, False, True]


# --- the compare-through return -------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    length=st.sampled_from([2, 6]),
    kind=st.sampled_from(["compare-through", "one-step", "multi-step"]),
    ignore_done=st.booleans(),
    rates=st.tuples(*[st.sampled_from([0.0, 0.2, 0.5, 1.0])] * 4),
    gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    seed=st.integers(0, 2**31),
)
def test_returns_are_those_of_a_walk_along_each_window(
    length, kind, ignore_done, rates, gamma, seed
):
    rng = np.random.default_rng(seed)
    shape = (length, 8)
    stored, fresh, ends, limits = (rng.random(shape) < rate for rate in rates)
    terminated, truncated = ends, limits & ~ends
    reward, value = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    none = jnp.zeros((*shape, 0))
    extra = Extra(none, none, jnp.ones(shape, jnp.int32), jnp.asarray(stored))
    flags = jnp.asarray(terminated), jnp.asarray(truncated)
    rows = Row(none, jnp.asarray(reward), *flags, none, extra)
    hp = scalars(HYPER | {"gamma": gamma, "reward_scale": 1.0})
    state = dataclasses.replace(STATELESS, reward_stats=None)
    backup = backup_of(n_step=length - 1, returns=kind, ignore_done=ignore_done)
    target, cut = backup(state, hp, rows, jnp.asarray(fresh)[1:], jnp.asarray(value)[1:, :, None])

    dead = terminated & (not ignore_done)
    for i in range(shape[1]):
        wanted, rests = taac_reference.walk(
            kind,
            *(
                x[:, i]
                for x in (reward, dead, truncated | (terminated & ~dead), stored | fresh, value)
            ),
            gamma,
        )
        np.testing.assert_allclose(target[:, i, 0], wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(cut[:, i] > 0, truncated[rests, i])


@cache
def backup_of(**options):
    hasty = {"xla_backend_optimization_level": 0}
    return jax.jit(make(**options).backup, compiler_options=hasty)


STATELESS = jax.tree.map(lambda x: None, make().init(random.key(0), scalars()))


def test_the_first_switch_of_a_window_does_not_matter():
    """It chose the trajectory whose value is learned; only later ones end the sum."""
    algo = make()
    batch = taac_reference.windows(algo)
    flip = lambda x: dataclasses.replace(x, switch=x.switch.at[0].set(~x.switch[0]))
    other = dataclasses.replace(
        batch, rows=dataclasses.replace(batch.rows, extra=flip(batch.rows.extra))
    )
    one, two = updated(algo, batch=batch), updated(algo, batch=other)
    assert reference.difference(one[0], two[0]) == 0


def test_time_limits_bootstrap_and_terminations_do_not():
    """A window of two rows: the second is final."""
    algo = make(n_step=1, critics=1)
    state, hp = midway(algo, scalars()), scalars()

    def target(terminated, truncated):
        batch = taac_reference.windows(algo)
        flags = lambda on: jnp.asarray([[False], [on]]) & jnp.ones((2, 6), bool)
        rows = dataclasses.replace(
            batch.rows, terminated=flags(terminated), truncated=flags(truncated)
        )
        value = jnp.full((1, 6, 1), 7.0)
        return algo.backup(state, hp, rows, jnp.zeros((1, 6), bool), value)[0][0, :, 0] - (
            hp.reward_scale * rows.reward[1]
        )

    np.testing.assert_allclose(target(False, False), 7 * 0.9, rtol=1e-5)
    np.testing.assert_allclose(target(False, True), 7 * 0.9, rtol=1e-5)
    np.testing.assert_allclose(target(True, False), 0, atol=1e-5)


def test_rows_that_end_an_episode_are_not_learned_from():
    algo = make()
    batch = taac_reference.windows(algo)
    final = batch.rows.final
    assert final.any()

    def with_answers(fill):
        """Another action, trajectory and switch in the final rows."""
        swap = lambda x: jnp.where(final[..., None], fill, x)
        extra = dataclasses.replace(
            batch.rows.extra,
            trajectory=swap(batch.rows.extra.trajectory),
            switch=jnp.where(final, fill > 0, batch.rows.extra.switch),
        )
        rows = dataclasses.replace(batch.rows, action=swap(batch.rows.action), extra=extra)
        return updated(algo, batch=dataclasses.replace(batch, rows=rows))[0]

    assert reference.difference(with_answers(-0.5), with_answers(0.5)) == 0


# --- temperatures ---------------------------------------------------------------------------


def test_entropies_follow_from_small_probabilities():
    np.testing.assert_allclose(switch_entropy(0.1), 0.3251, atol=5e-5)
    np.testing.assert_allclose(switch_entropy(0.05), 0.1985, atol=5e-5)
    np.testing.assert_allclose(action_entropy(0.1), -1.609, atol=5e-4)
    np.testing.assert_allclose(action_entropy(0.2), -0.916, atol=5e-4)
    np.testing.assert_allclose(action_entropy(0.184), -1.000, atol=5e-4)


@pytest.mark.parametrize(
    ("min_prob", "wanted"),
    [
        (None, (0.4, -0.6 * 3)),  # the hyper-parameters
        ((0.1,), (0.3251, -1.6094 * 3)),
        ((0.05, 0.2), (0.1985, -0.9163 * 3)),
    ],
)
def test_target_entropies_are_numbers_or_follow_a_rule(min_prob, wanted):
    got = make(action=3, min_prob=min_prob).target_entropies(scalars())
    np.testing.assert_allclose(got, wanted, atol=2e-4)


def test_default_entropies_are_those_of_the_paper():
    got = make(action=1).target_entropies(TAAC.Hyper())
    np.testing.assert_allclose(got, (switch_entropy(0.05), action_entropy(0.1)), atol=5e-5)


def test_temperatures_are_two_of_the_state_and_start_at_alpha():
    state = make().init(random.key(0), scalars())
    np.testing.assert_allclose(state.temperature.params, np.log([0.3, 0.3]), rtol=1e-6)


# --- trajectories ---------------------------------------------------------------------------

VARIANTS = [
    make(),
    make(TAACL),
    make(TAACL, inverse_mode=False),
    make(TAACQ),
    make(TAACQ, inverse_mode=False),
]
named = lambda algo: f"{type(algo).__name__}-{getattr(algo, 'inverse_mode', '')}"


@pytest.mark.parametrize("algo", VARIANTS, ids=named)
def test_trajectories_equal_numpys(algo):
    rng = np.random.default_rng(0)
    last, x = (rng.uniform(-1, 1, (50, n)) for n in (2 * algo.parts, 2))
    as_jax = lambda x: jnp.asarray(x, jnp.float32)
    for got, wanted in (
        (algo.advance(as_jax(last)), taac_reference.advance(algo, last)),
        (algo.new(as_jax(x), as_jax(last)), taac_reference.new(algo, x, last)),
    ):
        np.testing.assert_allclose(got, wanted, atol=1e-6)
        assert abs(np.asarray(got)).max() <= 1


def test_the_trajectories_of_each_kind_by_hand():
    step = lambda algo, *tau: algo.advance(jnp.float32(tau)).tolist()
    begin = lambda algo, x, *tau: algo.new(jnp.float32([x]), jnp.float32(tau)).tolist()
    one = {"action": 1}
    assert step(make(**one), 0.5) == [0.5]
    assert begin(make(**one), 0.25, 0.5) == [0.25]

    line, slope = make(TAACL, **one), make(TAACL, inverse_mode=False, **one)
    assert step(line, 0.5, 0.125) == [0.75, 0.125]
    assert step(line, 0.5, 0.5) == [1, 0.5]  # bounded, and the slope is kept
    assert begin(line, 0.5, 0.25, 0.75) == [0.5, 0.125]
    assert begin(slope, 0.125, 0.25, 0.75) == [0.5, 0.125]

    curve, bend = make(TAACQ, **one), make(TAACQ, inverse_mode=False, **one)
    assert step(curve, 0, 0.125, -0.25) == [-0.75, -0.375, -0.25]
    assert begin(curve, 0.5, 0, 0.25, 0.75) == [0.5, 0.25, 0.125]
    assert begin(bend, 0.125, 0.25, 0.75, -0.5) == [0.75, 0.25, 0.125]


def test_names():
    assert {name: ALGORITHMS[name] for name in KINDS} == KINDS
    assert TAACL(reference.spec()).inverse_mode
    assert TAACQ(reference.spec()).inverse_mode


# --- acting ---------------------------------------------------------------------------------


def carried(algo, n, repeats=1, seed=0):
    """A memory from within an episode."""
    rng = np.random.default_rng(seed)
    trajectory = jnp.asarray(rng.uniform(-1, 1, (n, algo.parts * 2)), jnp.float32)
    return Memory(trajectory, jnp.full(n, repeats, jnp.int32))


def act(algo, mode, n=1000, memory=None, state=None, key=1, values=HYPER):
    hp = scalars(values)
    state = midway(algo, hp) if state is None else state
    memory = carried(algo, n) if memory is None else memory
    obs = jnp.asarray(np.random.default_rng(3).normal(size=(n, 2)), jnp.float32)
    return algo.act(state, hp, memory, obs, random.key(key), jnp.int32(0), mode)


@pytest.mark.parametrize("algo", VARIANTS, ids=named)
@pytest.mark.parametrize("mode", ["random", "explore", "greedy"])
def test_a_step_follows_the_new_trajectory_or_the_old_one(algo, mode):
    memory = carried(algo, 500)
    action, after, extra = act(algo, mode, 500, memory)
    switch = np.asarray(extra.switch)
    assert 0 < switch.mean() < 1
    goes_on = taac_reference.advance(algo, np.float64(memory.trajectory))
    followed = np.asarray(extra.trajectory)
    np.testing.assert_allclose(followed[~switch], goes_on[~switch], atol=1e-6)
    assert (abs(followed[switch] - goes_on[switch]).max(-1) > 1e-4).all()
    np.testing.assert_array_equal(action, followed[:, :2])
    np.testing.assert_array_equal(after.trajectory, followed)
    np.testing.assert_array_equal(after.repeats, np.where(switch, 1, 2))
    np.testing.assert_array_equal(extra.last, memory.trajectory)
    np.testing.assert_array_equal(extra.repeats, 1)


def test_the_switch_knows_the_value_of_this_very_proposal():
    """Its odds are the softmax of the two values at its own temperature."""
    algo, hp = make(), scalars()
    state, n = midway(algo, hp), 20_000
    state = dataclasses.replace(
        state, temperature=type(state.temperature).of(jnp.log(jnp.float32([0.01, 9.0])))
    )
    one = carried(algo, 1)
    memory = jax.tree.map(lambda x: jnp.repeat(x, n, 0), one)
    obs = jnp.ones((n, 2))
    _, _, extra = algo.act(state, hp, memory, obs, random.key(1), jnp.int32(0), "explore")
    taken = np.asarray(extra.trajectory)[np.asarray(extra.switch)]
    critics = taac_reference.plain(state.critic.params)
    value = lambda a: taac_reference.lowest(critics, np.ones((len(a), 2)), a, [1.0])[:, 0]
    # Of proposals drawn from the actor, better ones are taken more often: by Bayes' rule.
    proposals = np.asarray(
        algo.policy(state, state.actor.params, obs, memory.trajectory).sample(random.key(9))[0]
    )
    advantage = value(np.float64(proposals)) - value(np.float64(one.trajectory))
    chance = 1 / (1 + np.exp(-advantage / 0.01))
    np.testing.assert_allclose(extra.switch.mean(), chance.mean(), atol=0.02)
    wanted = (chance * value(np.float64(proposals))).sum() / chance.sum()
    np.testing.assert_allclose(value(np.float64(taken)).mean(), wanted, atol=0.002)
    assert wanted > value(np.float64(proposals)).mean() + 0.01


def test_greedy_steps_take_the_likeliest_proposal_and_the_better_trajectory():
    algo = make()
    state, memory = midway(algo, scalars()), carried(algo, 200)
    action, _, extra = act(algo, "greedy", 200, memory, state)
    obs = np.random.default_rng(3).normal(size=(200, 2)).astype(np.float32)
    plain = taac_reference.plain
    best, _ = taac_reference.act(
        plain(state.actor.params), np.float64(obs), np.float64(memory.trajectory), 0.0
    )
    critics = plain(state.critic.params)
    value = lambda a: taac_reference.lowest(critics, np.float64(obs), np.float64(a), [1.0])[:, 0]
    better = value(best) > value(memory.trajectory)
    np.testing.assert_array_equal(extra.switch, better)
    wanted = np.where(better[:, None], best, memory.trajectory)
    np.testing.assert_allclose(action, wanted, atol=1e-5)


def test_epsilon_greedy_samples_proposal_and_switch_independently():
    state, memory = midway(make(), scalars()), carried(make(), 4000)
    play = lambda epsilon, key=1: act(
        make(epsilon_greedy=epsilon), "greedy", 4000, memory, state, key
    )
    greedy, half, free = (play(epsilon) for epsilon in (0.0, 0.5, 1.0))
    assert reference.difference(greedy, play(0.0, key=2)) == 0
    explored = act(make(), "explore", 4000, memory, state)
    odds = lambda out: float(out[2].switch.mean())
    np.testing.assert_allclose(odds(free), odds(explored), atol=0.03)
    both = greedy[2].switch & half[2].switch
    same = jnp.abs(greedy[0] - half[0]).max(-1) == 0
    # Where both take a proposal, half of them are the mode.
    np.testing.assert_allclose((same & both).sum() / both.sum(), 0.5, atol=0.05)
    changed = (greedy[2].switch != half[2].switch).mean()
    assert 0.05 < changed < (greedy[2].switch != free[2].switch).mean() - 0.05


def test_warm_up_switches_at_random_and_takes_uniform_actions():
    """So runs last two steps on average."""
    _, _, extra = act(make(), "random", 8000)
    np.testing.assert_allclose(extra.switch.mean(), 0.5, atol=0.03)
    taken = np.asarray(extra.trajectory)[np.asarray(extra.switch)]
    for one in taken.T:
        counts, _ = np.histogram(one, 10, (-1, 1))
        assert (abs(counts - len(taken) / 10) < 110).all()


def test_advantage_clipping_bounds_the_odds():
    algo = make(advantage_clip=(0.0, None))
    state = midway(algo, scalars())
    log_beta = lambda algo, advantage: algo.log_beta(state, jnp.zeros(()), jnp.float32(advantage))
    np.testing.assert_allclose(np.exp(log_beta(algo, -3.0)), 0.5, rtol=1e-6)
    assert np.exp(log_beta(algo, 0.5))[1] > 0.85
    both = make(advantage_clip=(-0.1, 0.1))
    odds = lambda x: 1 / (1 + np.exp(-x / 0.25))
    np.testing.assert_allclose(np.exp(log_beta(both, 3.0))[1], odds(0.1), rtol=1e-5)
    np.testing.assert_allclose(np.exp(log_beta(both, -3.0))[1], odds(-0.1), rtol=1e-5)


def test_a_switch_that_is_cold_stays_finite():
    algo = make()
    state = midway(algo, scalars())
    state = dataclasses.replace(
        state, temperature=type(state.temperature).of(jnp.float32([-60.0, -60.0]))
    )
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(updated(algo, state)))


# --- hyper-parameters are data --------------------------------------------------------------

BOLD = {"actor_lr": 0.5, "critic_lr": 0.5, "tau": 0.5}
CHANGED = {
    "actor_lr": 0.1,
    "critic_lr": 0.1,
    "alpha_lr": 0.05,
    "gamma": 0.5,
    "tau": 0.2,
    "reward_scale": 0.6,
    "reward_clip": 0.5,
    "alpha": 0.9,
    "target_entropy": -0.1,
    "target_switch_entropy": 0.2,
}
EFFECT = {
    "actor_lr": {"actor"},
    "critic_lr": {"critic", "target"},
    "alpha_lr": {"temperature"},
    "gamma": {"critic", "target"},
    "tau": {"target"},
    "reward_scale": {"critic", "target"},
    "reward_clip": {"critic", "target"},
    "alpha": {"initial temperature"},
    "target_entropy": {"temperature"},
    "target_switch_entropy": {"temperature"},
}
PARTS = ("actor", "critic", "target", "temperature")


@pytest.fixture(scope="module")
def population():
    """Members that differ from the first in one hyper-parameter each, and one update of all."""
    algo = make(normalize_rewards=True)
    hps = reference.members(TAAC.Hyper, HYPER | BOLD, CHANGED)
    state, batch = midway(algo, scalars()), taac_reference.windows(algo)
    update = jax.jit(jax.vmap(algo.update, in_axes=(None, 0, None, None, None)))
    new = update(state, hps, batch, random.key(2), jnp.int32(0))
    return algo, hps, state, batch, update, new


def test_each_hyper_parameter_changes_what_it_should_and_nothing_else(population):
    algo, hps, _, _, _, (new, _, _) = population
    assert EFFECT.keys() == CHANGED.keys() == reference.updating(TAAC.Hyper)
    initial = jax.vmap(lambda hp: algo.init(random.key(0), hp).temperature)(hps)
    parts = {p: getattr(new, p) for p in PARTS} | {"initial temperature": initial}
    assert reference.effects(parts, CHANGED) == EFFECT


def test_members_equal_themselves_alone(population):
    algo, hps, state, batch, _, new = population
    for i in (0, 4):
        hp = jax.tree.map(jnp.asarray, reference.member(hps, i))
        alone = algo.update(state, hp, batch, random.key(2), jnp.int32(0))
        assert reference.difference(alone, reference.member(new, i)) < 5e-5


def test_new_hyper_parameters_compile_nothing(population):
    _, hps, state, batch, update, _ = population
    update(state, jax.tree.map(lambda x: x * 0.9, hps), batch, random.key(2), jnp.int32(1))
    assert update._cache_size() <= 1  # 0 if others pushed it out


def test_randomness_comes_from_the_key(population):
    _, hps, state, batch, update, (new, _, _) = population
    again, _, _ = update(state, hps, batch, random.key(2), jnp.int32(0))
    other, _, _ = update(state, hps, batch, random.key(3), jnp.int32(0))
    assert reference.difference(new, again) == 0
    assert reference.difference(new.critic, other.critic) > 1e-4
    assert reference.difference(new.actor, other.actor) > 1e-4


# --- windows --------------------------------------------------------------------------------


@cache
def filled(rows, envs=3, capacity=30):
    """A replay whose observations tell (time, environment)."""
    zeros = jnp.zeros((1, envs))
    row = lambda t: Row(
        obs=jnp.stack([jnp.full(envs, t), jnp.arange(envs)], -1)[None].astype(jnp.float32),
        reward=zeros,
        terminated=zeros > 0,
        truncated=zeros > 0,
        action=zeros[..., None],
    )
    replay = Replay.empty(capacity, row(0))
    rows_ = jax.vmap(row)(jnp.arange(rows))
    replay, _ = jax.lax.scan(lambda ring, x: (ring.add(x), None), replay, rows_)
    return replay.of(jnp.int32(0))


def starts(algo, rows=40):
    """Times and environments where windows began, and whether the rows are consecutive."""
    b = algo.sample(filled(rows), None, None, random.key(0), jnp.int32(0))
    obs = np.asarray(b.rows.obs)
    assert obs.shape == (algo.n_step + 1, algo.batch_size, 2)
    np.testing.assert_array_equal(np.diff(obs[..., 0], axis=0), 1)
    np.testing.assert_array_equal(np.diff(obs[..., 1], axis=0), 0)
    return obs[0, :, 0].astype(int), obs[0, :, 1].astype(int), b


def test_windows_are_consecutive_rows_drawn_uniformly():
    time, env, b = starts(make(batch_size=3000))
    assert set(time) == set(range(10, 37))  # rows 10 to 39 are stored, windows have four
    assert set(env) == {0, 1, 2}
    assert (abs(np.bincount(time)[10:] - 3000 / 27) < 55).all()
    assert b.valid.all()
    assert (b.weight == 1).all()


def test_stratified_windows_are_spread_evenly_over_environments_and_time():
    time, env, _ = starts(make(batch_size=3 * 27, stratified=True))
    pairs = set(zip(time, env))
    assert len(pairs) == 3 * 27  # each once: drawn without replacement
    time, env, _ = starts(make(batch_size=20, stratified=True))
    assert (np.bincount(env) >= 6).all()
    for e in range(3):
        part = np.sort((time[:18][env[:18] == e] - 10) * 6 // 27)
        np.testing.assert_array_equal(part, np.arange(6))


def test_a_share_of_the_windows_is_recent():
    options = {"batch_size": 40, "recent_share": 0.25, "recent_steps": 2}
    for stratified in (False, True):
        time, env, _ = starts(make(**options, stratified=stratified))
        recent = time >= 35
        assert recent[-10:].all()
        assert set(time[-10:]) == {35, 36}
        assert set(env[-10:]) == {0, 1, 2}
        assert recent[:-10].mean() < 0.3


def test_windows_that_the_replay_cannot_fill_are_invalid():
    view = filled(3)
    b = make(batch_size=5).sample(view, None, None, random.key(0), jnp.int32(0))
    assert not b.valid.any()
    assert (
        make(batch_size=5, n_step=2)
        .sample(view, None, None, random.key(0), jnp.int32(0))
        .valid.all()
    )


# --- in the loop ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored():
    """What the loop stored of a task of ten steps: rows [time, env]."""
    env = Autoreset(Pendulum(limit=10))
    algo = TAACQ(env.spec, hidden=(4,), batch_size=4, max_repeat_steps=3)
    loop = Loop(algo, env, envs=4, capacity=200, updates_per_step=Fraction(1, 8))
    seeds, hps = jnp.arange(1), hyper.fill(TAAC.Hyper, {}, 1)
    driver = DeviceDriver(loop, seeds)
    learner = driver.init(seeds, hps)
    learner = driver.run(learner, hps, None, seeds, 200, "explore", True)
    rows = jax.tree.map(lambda x: np.asarray(x)[:, 0], learner.replay.rows)
    return algo, rows


def test_what_is_stored_is_what_was_followed(stored):
    algo, rows = stored
    extra = rows.extra
    np.testing.assert_array_equal(rows.action, extra.trajectory[..., :1])
    goes_on = np.float32(taac_reference.advance(algo, np.float64(extra.last)))
    kept = ~extra.switch
    assert kept.sum() > 100
    np.testing.assert_allclose(extra.trajectory[kept], goes_on[kept], atol=1e-6)


def test_the_trajectory_is_carried_from_row_to_row_and_starts_anew_with_an_episode(stored):
    _, rows = stored
    extra = rows.extra
    first = np.roll(rows.terminated | rows.truncated, 1, 0)
    first[0] = True
    assert first.sum() > 40
    np.testing.assert_array_equal(extra.last[1:][~first[1:]], extra.trajectory[:-1][~first[1:]])
    assert (extra.last[first] == 0).all()
    assert (extra.repeats[first] == 0).all()
    ages = np.where(extra.switch, 0, extra.repeats) + 1
    np.testing.assert_array_equal(extra.repeats[1:][~first[1:]], ages[:-1][~first[1:]])


# --- known faults of other implementations --------------------------------------------------


def test_defect_45_a_forced_switch_is_stored_as_a_switch(stored):
    """So that the return does not run on across a change that it takes for a repetition."""
    _, rows = stored
    forced = rows.extra.repeats >= 3
    assert forced.sum() > 10
    assert rows.extra.switch[forced].all()
    assert rows.extra.repeats.max() == 3

    algo, memory = make(max_repeat_steps=2), carried(make(), 500, repeats=2)
    free = act(make(), "greedy", 500, memory)[2].switch
    assert not free.all()
    for mode in ("random", "explore", "greedy"):
        assert act(algo, mode, 500, memory)[2].switch.all()
        assert not act(algo, mode, 500, carried(algo, 500, repeats=1))[2].switch.all()


def test_maximum_repetition_does_not_change_what_is_learned():
    one, two = (updated(make(max_repeat_steps=n))[0] for n in (None, 1))
    assert reference.difference(one, two) == 0


def test_defect_48_every_window_has_a_priority():
    algo = make()
    _, _, priorities = updated(algo)
    assert priorities.shape == (taac_reference.BATCH,)
    assert (priorities[:-1] > 0).any()


def test_defect_49_no_entropy_is_in_the_target_by_design():
    """However hot the proposal's temperature: only the actor's loss has its entropy."""
    algo = make()
    state = midway(algo, scalars())
    heat = lambda alpha: dataclasses.replace(
        state, temperature=type(state.temperature).of(jnp.log(jnp.float32([0.25, alpha])))
    )
    cold, hot = (updated(algo, heat(alpha))[0] for alpha in (1e-6, 10.0))
    assert reference.difference(cold.critic, hot.critic) == 0
    assert reference.difference(cold.actor, hot.actor) > 1e-3


@pytest.mark.parametrize("Algorithm", [TAACL, TAACQ])
def test_defect_50_a_saturated_proposal_still_has_a_gradient(Algorithm):
    algo = make(Algorithm, action=1, inverse_mode=False)
    last = jnp.float32([0.9] + [0.0] * (algo.parts - 1))
    height = lambda x: algo.new(x, last)[0]
    assert height(jnp.float32([0.8])) == 1.0
    assert jax.grad(height)(jnp.float32([0.8]))[0] >= 2


@pytest.mark.parametrize("algo", VARIANTS, ids=named)
def test_defect_51_a_random_first_trajectory_is_one_the_policy_could_begin(algo):
    algo = dataclasses.replace(algo, first="random")
    first = np.asarray(algo.memory(random.key(0), 4000).trajectory)
    assert 0.9 < abs(first[:, :2]).max() <= 1
    np.testing.assert_allclose(first[:, :2].mean(0), 0, atol=0.05)
    if algo.parts == 3 and algo.inverse_mode:
        assert 0.4 < abs(first[:, 4:]).max() <= 0.5
        np.testing.assert_allclose(first[:, 2:4], 2 * first[:, 4:], atol=1e-6)
    assert len(np.unique(first)) > 3900
    other = algo.memory(random.key(1), 4000).trajectory
    assert reference.difference(first, other) > 0.1


def test_defect_52_the_first_step_repeats_nothing_unless_asked():
    for mode in ("random", "explore", "greedy"):
        for first, always in (("new", True), ("zero", False), ("random", False)):
            algo = make(first=first)
            memory = algo.memory(random.key(0), 500)
            assert act(algo, mode, 500, memory)[2].switch.all() == always
    start = make(first="zero").memory(random.key(0), 3)
    assert (start.trajectory == 0).all()


def test_a_random_first_trajectory_is_what_training_reads():
    algo = make(first="random")
    memory = algo.memory(random.key(0), 50)
    _, _, extra = act(algo, "explore", 50, memory)
    np.testing.assert_array_equal(extra.last, memory.trajectory)


@pytest.mark.parametrize("Algorithm", KINDS.values())
def test_defect_53_all_of_the_state_is_single_precision(Algorithm):
    state = make(Algorithm).init(random.key(0), scalars())
    floats = [x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert {x.dtype for x in floats} == {jnp.dtype("float32")}
    assert not any(x.weak_type for x in jax.tree.leaves(state))


def test_defect_54_every_part_of_a_trajectory_uses_all_of_minus_one_to_one(stored):
    algo, rows = stored
    parts = np.split(rows.extra.trajectory, algo.parts, -1)
    for part in parts:
        assert -1 <= part.min() < -0.2
        assert 0.2 < part.max() <= 1


def test_defect_55_losses_do_not_depend_on_the_length_of_windows():
    """Longer windows of the same rows leave the balance of actor, critics and temperatures."""
    short, long = make(n_step=1, returns="one-step"), make(n_step=5, returns="one-step")
    batch = taac_reference.windows(short)
    stay = lambda x: jnp.concatenate([x[:1], x[1:]] * 3)
    # Three copies one after another; the joints are final rows, which are left out.
    final = batch.rows.truncated.at[1].set(True)
    rows = dataclasses.replace(batch.rows, truncated=final, terminated=jnp.zeros_like(final))
    one = dataclasses.replace(batch, rows=rows)
    many = dataclasses.replace(batch, rows=jax.tree.map(stay, rows))
    state = midway(short, scalars())
    # The same proposals, so that only the lengths differ.
    mode = lambda self, key: (self.mode(), self.mean.sum(-1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thespis.dists.TanhGaussian.sample", mode)
        a, b = (updated(algo, state, batch=x)[1] for algo, x in ((short, one), (long, many)))
    for name in ("actor_loss", "critic_loss", "ent_coef_loss"):
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("Algorithm", KINDS.values())
def test_defect_57_actions_of_any_bounds_and_shape(Algorithm):
    """Algorithms act in [-1, 1] and environments rescale, so no bounds are refused."""
    bounds = Box((-2.0,) * 6, (5.0,) * 6, (2, 3))
    spec = Spec(
        {
            "a": jax.ShapeDtypeStruct((2,), jnp.float32),
            "b": jax.ShapeDtypeStruct((2, 2), jnp.uint8),
        },
        bounds,
    )
    algo, hp = Algorithm(spec, hidden=(4,)), scalars()
    obs = {"a": jnp.ones((5, 2)), "b": jnp.ones((5, 2, 2), jnp.uint8)}
    state, memory = algo.init(random.key(0), hp), algo.memory(random.key(1), 5)
    action, _, _ = algo.act(state, hp, memory, obs, random.key(2), jnp.int32(0), "explore")
    assert action.shape == (5, 6)
    assert abs(action).max() <= 1
    with pytest.raises(ThespisError, match="continuous actions"):
        Algorithm(Spec(spec.obs, Discrete(3)))


# --- what networks see ----------------------------------------------------------------------


def test_only_the_critics_train_a_shared_encoder():
    """The actor's loss would move it as well, if it were not held fast."""
    algo = make(encoder=(3,))
    state = midway(algo, scalars())
    still = scalars(HYPER | {"critic_lr": 0.0})
    moved, kept = updated(algo, state)[0], updated(algo, state, still)[0]
    before = state.critic.params.encoder
    assert reference.difference(moved.critic.params.encoder, before) > 1e-3
    assert reference.difference(kept.critic.params, state.critic.params) == 0
    assert reference.difference(kept.actor, state.actor) > 1e-3


def test_only_the_critics_train_convolutions_through_which_all_see():
    see = {"camera": jax.ShapeDtypeStruct((8, 8), jnp.uint8), "speed": make().spec.obs}
    conv = {"conv_channels": (2,), "conv_kernels": (3,), "conv_strides": (3,)}
    algo = TAAC(Spec(see, make().spec.action), hidden=(4,), n_step=1, **conv)
    windows = taac_reference.windows(algo, obs=2)
    images = lambda seed: np.random.default_rng(seed).integers(0, 255, (2, 1, 8, 8), np.uint8)
    shape = (*windows.rows.reward.shape, 8, 8)
    obs = {"camera": jnp.broadcast_to(images(0), shape), "speed": windows.rows.obs}
    batch = dataclasses.replace(windows, rows=dataclasses.replace(windows.rows, obs=obs))
    state, update = algo.init(random.key(0), scalars()), update_of(algo)
    still = scalars(HYPER | {"critic_lr": 0.0})
    moved, kept = (update(state, hp, batch, random.key(2), 0)[0] for hp in (scalars(), still))
    before = state.critic.params.eyes
    assert reference.difference(moved.critic.params.eyes, before) > 1e-3
    assert reference.difference(moved.target.eyes, before) > 1e-5
    assert reference.difference(kept.critic.params, state.critic.params) == 0

    @jax.jit
    def proposal(camera):
        seen = {"camera": jnp.asarray(camera)[:, 0], "speed": jnp.ones((2, 2))}
        memory = algo.memory(random.key(0), 2)
        return algo.act(state, still, memory, seen, random.key(1), jnp.int32(0), "greedy")[0]

    assert reference.difference(proposal(images(1)), proposal(images(2))) > 1e-4


def test_sizes_of_networks():
    def sizes(**options):
        algo = make(TAACL, **options)
        state = jax.eval_shape(algo.init, random.key(0), scalars())
        of = lambda net: tuple(x.shape[0] for x in (*net.weights, net.biases[-1]))
        actor, critic = state.actor.params, state.critic.params
        embeddings = [of(e) for e in actor.embeddings]
        return embeddings, of(actor.body), [of(net) for net in critic.critics.networks]

    assert sizes() == ([(2, 2)] * 2, (6, 4, 4), [(6, 4, 1)] * 2)
    assert sizes(embed=False)[:2] == ([], (6, 4, 4))
    assert sizes(encoder=(5,), critic_hidden=(7,), critics=1) == (
        [(2, 5)] * 2,
        (15, 4, 4),
        [(9, 7, 1)],
    )


# --- vector rewards -------------------------------------------------------------------------


def test_defect_46_a_weight_of_zero_does_not_erase_a_bootstrap():
    """The critics of a dimension that is only watched learn its whole return."""
    algo = make(reward_dim=2, reward_weights=(1.0, 0.0))
    q = jnp.asarray([[[3.0, 5.0]], [[2.0, 4.0]]])  # [critics, batch, d]
    np.testing.assert_array_equal(algo.lowest(q), [[2.0, 4.0]])
    only = make(reward_dim=2, reward_weights=(1.0, 1.0))
    np.testing.assert_array_equal(algo.lowest(q), only.lowest(q))


def test_the_minimum_is_pessimistic_in_the_direction_of_each_weight():
    algo = make(reward_dim=2, reward_weights=(0.5, -2.0), critics=2)
    q = jnp.asarray([[[3.0, 5.0]], [[2.0, 4.0]]])
    np.testing.assert_array_equal(algo.lowest(q), [[2.0, 5.0]])
    np.testing.assert_allclose(algo.scalar(algo.lowest(q)), [0.5 * 2 - 2 * 5])


def test_defect_47_a_reward_vector_of_one_equals_a_plain_reward():
    plain, vector = make(), make(reward_dim=1)
    batch = taac_reference.windows(plain)
    rows = dataclasses.replace(batch.rows, reward=batch.rows.reward[..., None])
    one = updated(plain, batch=batch)
    two = updated(vector, batch=dataclasses.replace(batch, rows=rows))
    assert reference.difference(one, two) < 1e-5  # but for rounding


def test_each_dimension_has_a_discount_of_its_own():
    algo = make(reward_dim=2, gammas=(0.0, 1.0), n_step=1)
    batch = taac_reference.windows(algo)
    going = jnp.zeros_like(batch.rows.terminated)
    rows = dataclasses.replace(batch.rows, terminated=going)
    hp, value = scalars(HYPER | {"reward_scale": 1.0}), jnp.full((1, 6, 2), 7.0)
    target, _ = algo.backup(midway(algo, hp), hp, rows, going[1:], value)
    np.testing.assert_allclose(target[0] - rows.reward[1], [[0.0, 7.0]] * 6, atol=1e-4)


# --- presets --------------------------------------------------------------------------------

SIMPLE = {"n_step": 3, "batch_size": 256, "hidden": (256, 256), "normalize_rewards": True}
PAPER = {
    "simple-control": (SIMPLE, 1e-4, {"reward_clip": 5.0}),
    "locomotion": (
        SIMPLE | {"normalize_rewards": False, "advantage_clip": (0.0, None)},
        3e-4,
        {"target_entropy": -1.0},
    ),
    "terrain": (SIMPLE | {"n_step": 5, "batch_size": 4096}, 5e-4, {"reward_clip": 1.0}),
    "manipulation": (
        SIMPLE | {"batch_size": 4864, "hidden": (256,) * 3, "target_period": 40},
        1e-3,
        {"reward_clip": 1.0, "gamma": 0.98, "tau": 0.05, "target_entropy": -0.9163},
    ),
    "driving": (
        SIMPLE | {"n_step": 5, "batch_size": 64, "hidden": (256,)},
        1e-4,
        {"reward_clip": 5.0},
    ),
}
USUAL = {"gamma": 0.99, "tau": 0.005, "alpha": 1.0, "target_switch_entropy": 0.1985}


@pytest.mark.parametrize("name", PAPER)
def test_presets_are_the_papers_settings(name):
    options, rate, numbers = PAPER[name]
    preset = TAAC.presets[name]
    algo = TAAC(reference.spec(), **preset["algo"])
    assert {key: getattr(algo, key) for key in options} == options
    hyper.check(TAAC.Hyper, preset["hp"])
    hp = vars(TAAC.Hyper(**preset["hp"]))
    wanted = USUAL | dict.fromkeys(("actor_lr", "critic_lr", "alpha_lr"), rate) | numbers
    assert {key: hp[key] for key in wanted} == wanted
    config = configs.make("taac", {"env": "jax:pendulum", "preset": name, "steps": 200_000})
    assert config.learning_starts == {"locomotion": 50_000, "terrain": 20_000}.get(name, 10_000)


# --- what is told ---------------------------------------------------------------------------


def test_the_report_counts_repetitions_and_the_runs_that_ended():
    """Of one environment: a run of three steps, one of two, then the end and a new episode."""
    switch = [1, 0, 0, 1, 0, 1, 1, 0]
    repeats = [0, 1, 2, 3, 1, 2, 0, 1]
    final = [0, 0, 0, 0, 0, 1, 0, 0]
    as_bool = lambda x: jnp.asarray(x, bool)
    extra = Extra(jnp.zeros((8, 1)), jnp.zeros((8, 1)), jnp.asarray(repeats), as_bool(switch))
    zeros = jnp.zeros(8)
    rows = Row(zeros, zeros, as_bool(final), zeros > 0, zeros, extra)
    told = {k: (m.total.sum(), m.count.sum()) for k, m in make().report(rows).items()}
    assert told == {"repeat_rate": (4, 5), "run_length": (3, 1)}
    zero = {k: (m.total.sum(), m.count.sum()) for k, m in make(first="zero").report(rows).items()}
    assert zero["repeat_rate"] == (4, 7)  # then a first step may repeat as well


# --- populations ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_population_tunes_its_switches_as_well(tmp_path):
    small = {"steps": 300, "learning_starts": 64, "hidden": (4,), "batch_size": 8, "eval_freq": 100}
    given = {"members": 3, "pbt": {"interval": 100}, "out": tmp_path, "progress": False}
    run = thespis.train("taac", env="jax:pendulum", eval_episodes=1, **small, **given)
    assert (run.lineage["member"] != run.lineage["parent"]).any()
    assert len(set(run.metrics["hparams/target_switch_entropy"])) > 3  # priors, and changes
    assert np.isfinite(run.policy("best")(np.zeros(3, np.float32))).all()


# --- mistakes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"advantage_clip": (0.0,)}, "advantage_clip.*give 2 numbers"),
        ({"min_prob": (0.1, 0.1, 0.1)}, "min_prob.*give 1 or 2 numbers"),
        ({"reward_dim": 3, "gammas": (0.9, 0.9)}, "gammas.*give 3 numbers"),
        ({"reward_weights": (1.0, 2.0)}, "reward is one number"),
        ({"reward_dim": 3, "reward_weights": (1.0, 2.0)}, "vector of 3"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ThespisError, match=message):
        make(**options)


def test_rules_have_the_closed_form():
    assert math.isclose(switch_entropy(0.5), math.log(2))
    assert math.isclose(action_entropy(1.0), math.log(2))
