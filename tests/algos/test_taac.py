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
from optax import ScaleByAdamState

import thespis
from tests.algos import reference, taac_reference
from thespis.algos import TAAC, TAACL, TAACQ
from thespis.algos.action_repeats import ACTION_EDGES, LENGTH_EDGES
from thespis.algos.taac import Extra, Memory, action_entropy, switch_entropy
from thespis.core import Box, Discrete, Histogram, Row, Spec, ThespisError
from thespis.engine.loop import DeviceDriver, Loop
from thespis.engine.rollout import FrozenPolicy
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import Pendulum
from thespis.nn.train_state import TrainState
from thespis.replay.ring import Replay
from thespis.runs.run import Policy
from thespis.tuning import hyper

HYPER = reference.HYPER | {
    "reward_clip": 1.1,
    "target_switch_entropy": 0.4,
    "huber_delta": 0.8,
}
KINDS = {"taac": TAAC, "taac-l": TAACL, "taac-q": TAACQ}


def make(Algorithm=TAAC, action=2, reward_dim=None, **options) -> TAAC:
    spec = dataclasses.replace(reference.spec(action=action), reward_dim=reward_dim)
    return Algorithm(spec, **({"hidden": (4,)} | options))


def scalars(values=HYPER):
    return reference.scalars(TAAC.Hyper, values)


def midway(algo: TAAC, hp=None, seed=0):
    """A state as found in training: moments, a target and temperatures of their own."""
    state = reference.drawn(algo, scalars() if hp is None else hp, seed)
    return dataclasses.replace(state, temperature=reference.aged(heat(0.25, 0.2), 3))


def heat(*alphas):
    """Temperatures of the switch and of the proposal."""
    return reference.learned(np.log(np.float32(alphas)))


def updated(algo, state=None, hp=None, batch=None, key=2, step=0):
    hp = scalars() if hp is None else hp
    state = midway(algo, hp) if state is None else state
    batch = taac_reference.windows(algo) if batch is None else batch
    return reference.update_of(algo)(state, hp, batch, random.key(key), jnp.int32(step))


# --- one update -----------------------------------------------------------------------------

WEIGHED = {"reward_weights": (0.7, -1.3, 0.0), "gammas": (0.5, 0.9, 1.0)}
# Choices that do not touch each other share an update.
OPTIONS = [
    {},
    {"action": 1, "hidden": (4, 4), "critic_hidden": (4,), "n_step": 1, "td_loss": "huber"},
    {"returns": "one-step", "first": "zero", "encoder": (4, 3)},
    {"returns": "multi-step", "first": "random", "ignore_done": True},
    {"advantage_clip": (0.0, None), "embed": False, "critics": 1, "drop_truncated": True},
    {"advantage_clip": (-0.05, 0.02), "min_prob": (0.05, 0.184), "normalize_observations": True},
    {"reward_dim": 3, **WEIGHED},
    {"reward_dim": 2, "normalize_rewards": True, "td_loss": "huber"},
    {"Algorithm": TAACL, "n_step": 5, "critics": 3},
    {"Algorithm": TAACL, "inverse_mode": False, "normalize_rewards": True},
    {"Algorithm": TAACQ, "embed": False, "advantage_clip": (None, 0.1), "min_prob": (0.2,)},
    {"Algorithm": TAACQ, "inverse_mode": False},
]


@pytest.mark.cases(5)
@pytest.mark.parametrize("options", OPTIONS, ids=reference.named)
def test_update_is_what_numpy_computes(options, monkeypatch):
    algo, hp = make(**options), scalars()
    state, batch = midway(algo, hp), taac_reference.windows(algo)
    noise, fresh = taac_reference.fixed_draws(monkeypatch, algo)

    update = reference.quick(algo.update)
    new, metrics, priorities = update(state, hp, batch, random.key(2), jnp.int32(0))

    inputs = (taac_reference.plain(x) for x in (state, hp, batch))
    state_, metrics_, priorities_ = taac_reference.taac(algo, *inputs, noise, fresh)
    taac_reference.close(new, state_)
    assert metrics.keys() == metrics_.keys()
    for name, value in metrics_.items():
        got = metrics[name]
        if name in ("repeat_rate", "run_length"):  # a mean that not every batch has
            got, value = got.total / np.maximum(got.count, 1), value or 0
        if name == "switch_probabilities":
            got = got.count
        np.testing.assert_allclose(got, value, 2e-4, 2e-5, err_msg=name)
    np.testing.assert_allclose(priorities, priorities_, 2e-4)


def test_the_actor_climbs_the_chosen_value_and_entropy():
    """The paper's surrogate, with the critics' slope in place of the critics, moves it alike."""
    algo, hp = make(), scalars()
    state, batch = midway(algo, hp), taac_reference.windows(algo)
    extra = batch.rows.extra
    obs = batch.rows.obs

    def loss(actor, surrogate):
        valid = batch.valid[None] * (1.0 - batch.rows.final.astype(jnp.float32))
        alpha = jnp.exp(state.temperature.params)
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

    @reference.quick
    def learn(actor):
        descended, _ = actor.apply_gradient(lambda a: (loss(a, True), None), hp.actor_lr)
        return jax.grad(loss)(actor.params, True), jax.grad(loss)(actor.params, False), descended

    slope, same, descended = learn(state.actor)
    assert reference.difference(slope, same) < 1e-6
    assert reference.difference(slope, jax.tree.map(np.zeros_like, slope)) > 1e-2
    assert reference.difference(updated(algo)[0].actor, descended) < 1e-5


def test_a_common_optimiser_is_separate_ones_at_one_rate():
    """Adam works number by number, and no loss reaches into another's parameters."""
    algo, parts = make(), ("actor", "critic", "temperature")
    rates = {"actor_lr": 0.04, "critic_lr": 0.04, "alpha_lr": 0.04}
    hp, spied = scalars(HYPER | rates), []

    class Spy(TrainState):
        def apply_gradient(self, loss, lr, weight_decay=None):
            spied.append(loss)
            return super().apply_gradient(loss, lr, weight_decay)

    @reference.quick
    def learn(state, batch):
        alike = [getattr(state, part) for part in parts]
        spies = {part: Spy(**vars(x)) for part, x in zip(parts, alike)}
        watched = dataclasses.replace(state, **spies)
        separate, _, _ = algo.update(watched, hp, batch, random.key(2), jnp.int32(0))
        # In the order of the update: actor, critic, temperatures.
        of = lambda what: [getattr(x, what) for x in alike]
        past = of("opt_state")
        moments = ScaleByAdamState(jnp.int32(3), [x.mu for x in past], [x.nu for x in past])
        joint = TrainState(of("params"), moments)
        total = lambda all_: (sum(loss(p)[0] for p, loss in zip(all_, spied)), None)
        return [getattr(separate, part).params for part in parts], joint.apply_gradient(
            total, 0.04
        )[0]

    with jax.debug_key_reuse(False):  # the same proposals once more
        separate, joint = learn(midway(algo, hp), taac_reference.windows(algo))
    for one, other in zip(separate, joint.params):
        assert reference.difference(one, other) < 1e-6


def test_a_batch_without_a_row_to_learn_from_stays_finite():
    algo = make()
    batch = taac_reference.windows(algo)
    none = dataclasses.replace(batch, valid=jnp.asarray(np.zeros_like(batch.valid)))
    assert finite(updated(algo, batch=none))


def finite(tree) -> bool:
    return all(np.isfinite(x).all() for x in jax.tree.leaves(tree))


def test_the_target_follows_at_its_period():
    algo = make(target_period=3)
    state = midway(algo)
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
    none = jnp.asarray(np.zeros((*shape, 0), np.float32))
    extra = Extra(none, none, jnp.asarray(np.ones(shape, np.int32)), jnp.asarray(stored))
    flags = jnp.asarray(terminated), jnp.asarray(truncated)
    rows = Row(none, jnp.asarray(reward), *flags, none, extra)
    hp = scalars(HYPER | {"gamma": gamma, "reward_scale": 1.0})
    backup = backup_of(returns=kind, ignore_done=ignore_done)
    target, cut = map(np.asarray, backup(STATELESS, hp, rows, fresh[1:], value[1:, :, None]))

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
    return reference.quick(make(**options).backup)


STATELESS = jax.tree.map(lambda x: None, jax.eval_shape(make().init, random.key(0), scalars()))


def test_the_first_switch_of_a_window_does_not_matter():
    """It chose the trajectory whose value is learned; only later ones end the sum."""
    algo = make()
    batch = taac_reference.windows(algo)
    switch = np.array(batch.rows.extra.switch)
    switch[0] = ~switch[0]
    extra = dataclasses.replace(batch.rows.extra, switch=jnp.asarray(switch))
    other = dataclasses.replace(batch, rows=dataclasses.replace(batch.rows, extra=extra))
    one, two = updated(algo, batch=batch), updated(algo, batch=other)
    assert reference.difference(one[0], two[0]) == 0


def test_time_limits_bootstrap_and_terminations_do_not():
    """A window of two rows: the second is final."""
    hp, batch = scalars(), taac_reference.windows(make(n_step=1))
    backup = backup_of()

    def target(terminated, truncated):
        flags = lambda on: jnp.asarray(np.repeat([[False], [on]], 6, 1))
        rows = dataclasses.replace(
            batch.rows, terminated=flags(terminated), truncated=flags(truncated)
        )
        value = np.full((1, 6, 1), 7.0, np.float32)
        target, _ = backup(STATELESS, hp, rows, np.zeros((1, 6), bool), value)
        return np.asarray(target)[0, :, 0] - HYPER["reward_scale"] * np.asarray(rows.reward)[1]

    np.testing.assert_allclose(target(False, False), 7 * 0.9, rtol=1e-5)
    np.testing.assert_allclose(target(False, True), 7 * 0.9, rtol=1e-5)
    np.testing.assert_allclose(target(True, False), 0, atol=1e-5)


def test_rows_that_end_an_episode_are_not_learned_from():
    algo = make()
    batch = taac_reference.windows(algo)
    final = np.asarray(batch.rows.terminated) | np.asarray(batch.rows.truncated)
    assert final.any()

    def with_answers(fill):
        """Another action, trajectory and switch in the final rows."""
        swap = lambda x: jnp.asarray(np.where(final[..., None], np.float32(fill), x))
        extra = dataclasses.replace(
            batch.rows.extra,
            trajectory=swap(batch.rows.extra.trajectory),
            switch=jnp.asarray(np.where(final, fill > 0, batch.rows.extra.switch)),
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
    state = reference.quick(make().init)(random.key(0), scalars())
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


# --- acting ---------------------------------------------------------------------------------


def carried(algo, n, repeats=1, seed=0):
    """A memory from within an episode."""
    rng = np.random.default_rng(seed)
    trajectory = jnp.asarray(rng.uniform(-1, 1, (n, algo.parts * 2)), jnp.float32)
    return Memory(trajectory, jnp.asarray(np.full(n, repeats, np.int32)))


def act(algo, mode, memory, state=None, key=1, obs=None):
    state = midway(algo) if state is None else state
    given = np.random.default_rng(3).normal(size=(len(memory.repeats), 2)) if obs is None else obs
    out = act_of(algo, mode)(state, memory, np.float32(given), random.key(key))
    return jax.tree.map(np.asarray, out)


@cache
def act_of(algo, mode):
    return reference.quick(
        lambda state, memory, obs, key: algo.act(
            state, scalars(), memory, obs, key, jnp.int32(0), mode
        )
    )


@pytest.mark.parametrize(
    ("algo", "mode"),
    [*((algo, "explore") for algo in VARIANTS), (VARIANTS[0], "random"), (VARIANTS[3], "greedy")],
    ids=lambda x: x if isinstance(x, str) else named(x),
)
def test_a_step_follows_the_new_trajectory_or_the_old_one(algo, mode):
    memory = carried(algo, 500)
    action, after, extra = act(algo, mode, memory)
    switch = extra.switch
    assert 0 < switch.mean() < 1
    goes_on = taac_reference.advance(algo, np.float64(memory.trajectory))
    followed = extra.trajectory
    np.testing.assert_allclose(followed[~switch], goes_on[~switch], atol=1e-6)
    assert (abs(followed[switch] - goes_on[switch]).max(-1) > 1e-4).all()
    np.testing.assert_array_equal(action, followed[:, :2])
    np.testing.assert_array_equal(after.trajectory, followed)
    np.testing.assert_array_equal(after.repeats, np.where(switch, 1, 2))
    np.testing.assert_array_equal(extra.last, memory.trajectory)
    np.testing.assert_array_equal(extra.repeats, 1)


def test_the_switch_knows_the_value_of_this_very_proposal():
    """Its odds are the softmax of the two values at its own temperature."""
    algo, n = make(), 20_000
    state = dataclasses.replace(midway(algo), temperature=heat(0.01, 9.0))
    one = carried(algo, 1)
    memory = jax.tree.map(lambda x: jnp.asarray(np.repeat(x, n, 0)), one)
    obs = np.ones((n, 2), np.float32)
    _, _, extra = act(algo, "explore", memory, state, obs=obs)
    taken = extra.trajectory[extra.switch]
    critics = taac_reference.plain(state.critic.params)
    value = lambda a: taac_reference.lowest(critics, np.ones((len(a), 2)), a, [1.0])[:, 0]
    # Of proposals drawn from the actor, better ones are taken more often: by Bayes' rule.
    propose = lambda *x: algo.policy(state, state.actor.params, *x).sample(random.key(9))[0]
    proposals = np.asarray(reference.quick(propose)(obs, memory.trajectory))
    advantage = value(np.float64(proposals)) - value(np.float64(one.trajectory))
    chance = 1 / (1 + np.exp(-advantage / 0.01))
    np.testing.assert_allclose(extra.switch.mean(), chance.mean(), atol=0.02)
    wanted = (chance * value(np.float64(proposals))).sum() / chance.sum()
    np.testing.assert_allclose(value(np.float64(taken)).mean(), wanted, atol=0.002)
    assert wanted > value(np.float64(proposals)).mean() + 0.01


def test_greedy_steps_take_the_likeliest_proposal_and_the_better_trajectory():
    algo = make()
    state, memory = midway(algo), carried(algo, 500)
    action, _, extra = act(algo, "greedy", memory, state)
    obs = np.random.default_rng(3).normal(size=(500, 2)).astype(np.float32)
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
    state, memory = midway(make(), seed=4), carried(make(), 4000)
    play = lambda epsilon, key=1: act(make(epsilon_greedy=epsilon), "greedy", memory, state, key)
    greedy, half, free = (play(epsilon) for epsilon in (0.0, 0.5, 1.0))
    assert reference.difference(greedy, play(0.0, key=2)) == 0
    explored = act(make(), "explore", memory, state)
    odds = lambda out: float(out[2].switch.mean())
    np.testing.assert_allclose(odds(free), odds(explored), atol=0.03)
    both = greedy[2].switch & half[2].switch
    same = abs(greedy[0] - half[0]).max(-1) == 0
    # Where both take a proposal, half of them are the mode.
    np.testing.assert_allclose((same & both).sum() / both.sum(), 0.5, atol=0.05)
    changed = (greedy[2].switch != half[2].switch).mean()
    assert 0.05 < changed < (greedy[2].switch != free[2].switch).mean() - 0.05


def test_warm_up_switches_at_random_and_takes_uniform_actions():
    """So runs last two steps on average."""
    _, _, extra = act(make(), "random", carried(make(), 8000))
    np.testing.assert_allclose(extra.switch.mean(), 0.5, atol=0.03)
    taken = extra.trajectory[extra.switch]
    for one in taken.T:
        counts, _ = np.histogram(one, 10, (-1, 1))
        assert (abs(counts - len(taken) / 10) < 110).all()


def test_advantage_clipping_bounds_the_odds():
    def beta(clip, *advantages):
        algo, zero = make(advantage_clip=clip), np.zeros(2, np.float32)
        return np.exp(reference.quick(algo.log_beta)(midway(algo), zero, np.float32(advantages)))

    odds = lambda x: 1 / (1 + np.exp(-x / 0.25))
    worse, better = beta((0.0, None), -3.0, 0.5)
    np.testing.assert_allclose(worse, 0.5, rtol=1e-6)
    assert better[1] > 0.85
    both = beta((-0.1, 0.1), 3.0, -3.0)
    np.testing.assert_allclose(both[:, 1], (odds(0.1), odds(-0.1)), rtol=1e-5)


def test_a_switch_that_is_cold_stays_finite():
    algo = make()
    cold = reference.learned(np.float32([-60.0, -60.0]))
    assert finite(updated(algo, dataclasses.replace(midway(algo), temperature=cold)))


# --- hyper-parameters are data --------------------------------------------------------------

BOLD = reference.BOLD
CHANGED = reference.CHANGED | {
    "reward_clip": 0.5,
    "target_switch_entropy": 0.2,
    "huber_delta": 0.1,
}
EFFECT = reference.EFFECT | {
    "critic_lr": {"critic", "target"},
    "gamma": {"critic", "target"},
    "reward_scale": {"critic", "target"},
    "reward_clip": {"critic", "target"},
    "huber_delta": {"critic", "target"},
    "target_switch_entropy": {"temperature"},
}
PARTS = ("actor", "critic", "target", "temperature")


@pytest.fixture(scope="module")
def population():
    """Members that differ from the first in one hyper-parameter each, and one update of all."""
    algo = make(normalize_rewards=True, td_loss="huber")
    hps = reference.members(TAAC.Hyper, HYPER | BOLD, CHANGED)
    state, batch = midway(algo), taac_reference.windows(algo)
    update = reference.quick(jax.vmap(algo.update, in_axes=(None, 0, None, None, None)))
    new = update(state, hps, batch, random.key(2), jnp.int32(0))
    return algo, hps, state, batch, update, new


def test_each_hyper_parameter_changes_what_it_should_and_nothing_else(population):
    algo, hps, _, _, _, (new, _, _) = population
    assert EFFECT.keys() == CHANGED.keys() == reference.updating(TAAC.Hyper)
    first = jax.vmap(lambda hp: algo.init(random.key(0), hp).temperature)
    initial = reference.quick(first)(hps)
    parts = {p: getattr(new, p) for p in PARTS} | {"initial temperature": initial}
    assert reference.effects(parts, CHANGED) == EFFECT


def test_members_equal_themselves_alone(population):
    algo, hps, state, batch, _, new = population
    for i in (0, 4):
        hp = jax.tree.map(jnp.asarray, reference.member(hps, i))
        alone = updated(algo, state, hp, batch)
        assert reference.difference(alone, reference.member(new, i)) < 5e-5


def test_new_hyper_parameters_compile_nothing(population):
    _, hps, state, batch, update, _ = population
    other = jax.tree.map(lambda x: jnp.asarray(np.float32(0.9) * x), hps)
    update(state, other, batch, random.key(2), jnp.int32(1))
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
def filled(rows, envs=3, capacity=30, members=1):
    """A replay whose observations tell (time, environment), counted over all members."""

    @reference.quick
    def fill():
        zeros = jnp.zeros((members, envs))
        who = jnp.arange(members * envs).reshape(members, envs)
        row = lambda t: Row(
            obs=jnp.stack([jnp.full_like(who, t), who], -1).astype(jnp.float32),
            reward=zeros,
            terminated=zeros > 0,
            truncated=zeros > 0,
            action=zeros[..., None],
        )
        rows_ = jax.vmap(row)(jnp.arange(rows))
        empty = Replay.empty(capacity, row(0))
        return jax.lax.scan(lambda ring, x: (ring.add(x), None), empty, rows_)[0]

    return fill()


def windows(algo, rows=40):
    draw = lambda ring, key: algo.sample(ring.view(jnp.int32(0)), None, None, key, jnp.int32(0))
    return jax.tree.map(np.asarray, reference.quick(draw)(filled(rows), random.key(0)))


def starts(algo):
    """Times and environments where windows began, and whether the rows are consecutive."""
    b = windows(algo)
    obs = b.rows.obs
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


@pytest.mark.parametrize("recent_share", [0.0, 0.5])
def test_windows_of_a_shared_replay_come_from_all_members_alike(recent_share):
    algo = make(batch_size=64, stratified=True, recent_share=recent_share, recent_steps=2)
    draw = lambda ring, key: algo.sample(ring.view(None), None, None, key, jnp.int32(0)).rows.obs
    obs = reference.quick(draw)(filled(40, envs=2, members=4), random.key(0))
    even = np.asarray(obs)[0, : 64 - round(recent_share * 64), 1].astype(int)
    np.testing.assert_array_equal(np.bincount(even // 2), [len(even) // 4] * 4)


@pytest.mark.parametrize(("stratified", "recent_share"), [(True, 0.0), (False, 0.5)])
def test_windows_of_stacks_hold_the_frames_before(stratified, recent_share):
    algo = make(batch_size=60, stratified=stratified, recent_share=recent_share, recent_steps=99)
    draw = lambda ring, key: (
        algo.sample(ring.view(jnp.int32(0)).stacked(3), None, None, key, jnp.int32(0)).rows.obs
    )
    obs = reference.quick(draw)(filled(40), random.key(0))
    np.testing.assert_array_equal(np.diff(np.asarray(obs)[..., 0], axis=-1), 1)


def test_windows_that_the_replay_cannot_fill_are_invalid():
    assert not windows(make(batch_size=5), rows=3).valid.any()
    assert windows(make(batch_size=5, n_step=2), rows=3).valid.all()


# --- in the loop ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored():
    """What the loop stored of a task of ten steps: rows [time, env]; and what it counted."""
    env = Autoreset(Pendulum(limit=10))
    algo = TAACQ(env.spec, hidden=(4,), batch_size=4, max_repeat_steps=3)
    loop = Loop(algo, env, envs=4, capacity=200, updates_per_step=Fraction(1, 8))
    seeds, hps = jnp.arange(1), hyper.fill(TAAC.Hyper, {}, 1)
    driver = DeviceDriver(loop, seeds)
    learner = driver.init(seeds, hps)
    learner = driver.run(learner, hps, None, seeds, 200, "explore", False)
    rows = jax.tree.map(lambda x: np.asarray(x)[:, 0], learner.replay.rows)
    return algo, rows, jax.device_get(learner.metric_sums)


def test_what_is_stored_is_what_was_followed(stored):
    algo, rows, _ = stored
    extra = rows.extra
    np.testing.assert_array_equal(rows.action, extra.trajectory[..., :1])
    goes_on = np.float32(taac_reference.advance(algo, np.float64(extra.last)))
    kept = ~extra.switch
    assert kept.sum() > 100
    np.testing.assert_allclose(extra.trajectory[kept], goes_on[kept], atol=1e-6)


def test_the_trajectory_is_carried_from_row_to_row_and_starts_anew_with_an_episode(stored):
    _, rows, _ = stored
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
    _, rows, _ = stored
    forced = rows.extra.repeats >= 3
    assert forced.sum() > 10
    assert rows.extra.switch[forced].all()
    assert rows.extra.repeats.max() == 3

    algo, memory = make(max_repeat_steps=2), carried(make(), 500, repeats=2)
    free = act(make(), "greedy", memory)[2].switch
    assert not free.all()
    for mode in ("random", "explore", "greedy"):
        assert act(algo, mode, memory)[2].switch.all()
        assert not act(algo, mode, carried(algo, 500, repeats=1))[2].switch.all()


def test_maximum_repetition_does_not_change_what_is_learned():
    one, two = (updated(make(max_repeat_steps=n))[0] for n in (None, 1))
    assert reference.difference(one, two) == 0


def test_defect_48_every_window_has_a_priority():
    algo = make()
    _, _, priorities = updated(algo)
    assert priorities.shape == (taac_reference.BATCH,)
    assert (np.asarray(priorities)[:-1] > 0).any()


def test_defect_49_no_entropy_is_in_the_target_by_design():
    """However hot the proposal's temperature: only the actor's loss has its entropy."""
    algo = make()
    state = midway(algo)
    at = lambda alpha: dataclasses.replace(state, temperature=heat(0.25, alpha))
    cold, hot = (updated(algo, at(alpha))[0] for alpha in (1e-6, 10.0))
    assert reference.difference(cold.critic, hot.critic) == 0
    assert reference.difference(cold.actor, hot.actor) > 1e-3


@pytest.mark.parametrize("algo", VARIANTS, ids=named)
def test_defect_51_a_random_first_trajectory_is_one_the_policy_could_begin(algo):
    algo = dataclasses.replace(algo, first="random")
    begin = algo.memory(random.key(0), 4000)
    draw = reference.quick(lambda key: algo.random_first(key, begin))
    first = np.asarray(draw(random.key(0)))
    assert 0.9 < abs(first[:, :2]).max() <= 1
    np.testing.assert_allclose(first[:, :2].mean(0), 0, atol=0.05)
    if algo.parts == 3 and algo.inverse_mode:
        assert 0.4 < abs(first[:, 4:]).max() <= 0.5
        np.testing.assert_allclose(first[:, 2:4], 2 * first[:, 4:], atol=1e-6)
    assert len(np.unique(first)) > 3900
    assert reference.difference(first, draw(random.key(1))) > 0.1


@cache
def begun(algo):
    """The memory of episodes that have just begun."""
    return reference.quick(lambda key: algo.memory(key, 500))(random.key(0))


def test_defect_52_the_first_step_repeats_nothing_unless_asked():
    for mode in ("random", "explore", "greedy"):
        for first, always in (("new", True), ("zero", False), ("random", False)):
            algo = make(first=first)
            memory = begun(algo)
            assert act(algo, mode, memory)[2].switch.all() == always
    start = begun(make(first="zero"))
    assert (np.asarray(start.trajectory) == 0).all()


@pytest.mark.parametrize("mode", ["random", "explore"])
def test_a_random_first_trajectory_is_what_training_reads(mode):
    algo = make(first="random")
    action, memory, extra = act(algo, mode, begun(algo))
    went_on = ~np.asarray(extra.switch)
    assert went_on.any()
    assert len(np.unique(extra.last)) > 900
    np.testing.assert_array_equal(np.asarray(action)[went_on], np.asarray(extra.last)[went_on])
    _, _, later = act(algo, mode, memory)
    np.testing.assert_array_equal(later.last, memory.trajectory)  # only at the start


def test_a_random_first_trajectory_is_for_training_alone():
    """Greedily an episode begins as with the zero one, be it evaluated, played or exported."""
    algo, zero = make(first="random"), make(first="zero")
    found, wanted = (act(x, "greedy", begun(x)) for x in (algo, zero))
    assert reference.difference(found, wanted) == 0
    other = reference.quick(lambda key: algo.memory(key, 500))(random.key(1))
    assert reference.difference(begun(algo), other) == 0


@pytest.mark.parametrize("stochastic", [False, True])
def test_a_policy_begins_at_random_only_if_it_acts_as_in_training(stochastic):
    """Which is what `policy(stochastic=True)` and `demos --stochastic` ask for."""
    env, obs = Autoreset(Pendulum()), np.ones((500, 3), np.float32)

    def actions(first: str) -> np.ndarray:
        algo = TAAC(env.spec, hidden=(4,), first=first)
        state = reference.quick(algo.init)(random.key(0), scalars())
        frozen = FrozenPolicy(state, scalars(), jnp.int32(0))
        return Policy(Loop(algo, env, capacity=10), frozen, stochastic)(obs)

    found, zero = actions("random"), actions("zero")
    if stochastic:
        assert (zero == 0).any()  # some went on with it
        assert len(np.unique(found)) == 500  # and these with one of their own
    else:
        np.testing.assert_array_equal(found, zero)


@pytest.mark.parametrize("Algorithm", KINDS.values())
def test_defect_53_all_of_the_state_is_single_precision(Algorithm):
    state = jax.eval_shape(make(Algorithm).init, random.key(0), scalars())
    floats = [x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert {x.dtype for x in floats} == {jnp.dtype("float32")}
    assert not any(x.weak_type for x in jax.tree.leaves(state))


def test_defect_54_every_part_of_a_trajectory_uses_all_of_minus_one_to_one(stored):
    algo, rows, _ = stored
    parts = np.split(rows.extra.trajectory, algo.parts, -1)
    for part in parts:
        assert -1 <= part.min() < -0.2
        assert 0.2 < part.max() <= 1


def test_defect_55_losses_do_not_depend_on_the_length_of_windows():
    """Longer windows of the same rows leave the balance of actor, critics and temperatures."""
    short, long = make(n_step=1, returns="one-step"), make(n_step=5, returns="one-step")
    batch = taac_reference.windows(short)
    stay = lambda x: jnp.asarray(np.concatenate([x, x, x]))
    # Three copies one after another; the joints are final rows, which are left out.
    final, none = np.array(batch.rows.truncated), jnp.asarray(np.zeros((2, 6), bool))
    final[1] = True
    rows = dataclasses.replace(batch.rows, truncated=jnp.asarray(final), terminated=none)
    one = dataclasses.replace(batch, rows=rows)
    many = dataclasses.replace(batch, rows=jax.tree.map(stay, rows))
    given = midway(short), scalars()
    # The same proposals, so that only the lengths differ.
    mode = lambda self, key: (self.mode(), self.mean.sum(-1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thespis.nn.distributions.TanhGaussian.sample", mode)
        a, b = (
            reference.quick(algo.update)(*given, x, random.key(2), jnp.int32(0))[1]
            for algo, x in ((short, one), (long, many))
        )
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
    obs = {"a": np.ones((5, 2), np.float32), "b": np.ones((5, 2, 2), np.uint8)}

    @reference.quick
    def play(obs):
        state, memory = algo.init(random.key(0), hp), algo.memory(random.key(1), 5)
        return algo.act(state, hp, memory, obs, random.key(2), jnp.int32(0), "explore")[0]

    action = np.asarray(play(obs))
    assert action.shape == (5, 6)
    assert abs(action).max() <= 1
    with pytest.raises(ThespisError, match="continuous actions"):
        Algorithm(Spec(spec.obs, Discrete(3)))


# --- vector rewards -------------------------------------------------------------------------


def test_defect_46_a_weight_of_zero_does_not_erase_a_bootstrap():
    """The critics of a dimension that is only watched learn its whole return."""
    algo = make(reward_dim=2, reward_weights=(1.0, 0.0))
    q = np.float32([[[3.0, 5.0]], [[2.0, 4.0]]])  # [critics, batch, d]
    np.testing.assert_array_equal(reference.quick(algo.lowest)(q), [[2.0, 4.0]])
    only = make(reward_dim=2, reward_weights=(1.0, 1.0))
    np.testing.assert_array_equal(reference.quick(only.lowest)(q), [[2.0, 4.0]])


def test_the_minimum_is_pessimistic_in_the_direction_of_each_weight():
    algo = make(reward_dim=2, reward_weights=(0.5, -2.0), critics=2)
    q = np.float32([[[3.0, 5.0]], [[2.0, 4.0]]])
    low, value = reference.quick(lambda q: (algo.lowest(q), algo.scalar(algo.lowest(q))))(q)
    np.testing.assert_array_equal(low, [[2.0, 5.0]])
    np.testing.assert_allclose(value, [0.5 * 2 - 2 * 5])


def test_defect_47_a_reward_vector_of_one_equals_a_plain_reward():
    plain, vector = make(), make(reward_dim=1)
    batch = taac_reference.windows(plain)
    reward = jnp.asarray(np.asarray(batch.rows.reward)[..., None])
    rows = dataclasses.replace(batch.rows, reward=reward)
    one, _, errors = updated(plain, batch=batch)
    two, _, same = updated(vector, batch=dataclasses.replace(batch, rows=rows))
    assert reference.difference((one, errors), (two, same)) < 1e-5  # but for rounding


def test_each_dimension_has_a_discount_of_its_own():
    algo = make(reward_dim=2, gammas=(0.0, 1.0), n_step=1)
    batch = taac_reference.windows(algo)
    going = np.zeros((2, 6), bool)
    rows = dataclasses.replace(batch.rows, terminated=jnp.asarray(going))
    hp, value = scalars(HYPER | {"reward_scale": 1.0}), np.full((1, 6, 2), 7.0, np.float32)
    target, _ = reference.quick(algo.backup)(STATELESS, hp, rows, going[1:], value)
    rest = np.asarray(target)[0] - np.asarray(rows.reward)[1]
    np.testing.assert_allclose(rest, [[0.0, 7.0]] * 6, atol=1e-4)


# --- what is told ---------------------------------------------------------------------------


def test_repetitions_of_new_rows_are_told_as_they_come(stored):
    """In the warm-up already, where nothing is replayed."""
    _, rows, tally = stored
    extra, told = rows.extra, tally.means(0)
    chose = ~(rows.terminated | rows.truncated) & (extra.repeats > 0)
    ended = chose & extra.switch
    np.testing.assert_allclose(told["rollout/repeat_rate"], 1 - ended.sum() / chose.sum(), 1e-5)
    np.testing.assert_allclose(told["rollout/run_length"], extra.repeats[ended].mean(), 1e-5)
    assert not [name for name in told if name.startswith("train/")]


def test_actions_and_lengths_of_runs_are_counted_as_they_come(stored):
    """Between edges; what lies beyond them is in the outer bins."""
    _, rows, tally = stored
    extra, told = rows.extra, tally.histograms(0)
    acted = ~(rows.terminated | rows.truncated)
    np.testing.assert_array_equal(
        told["rollout/actions/0"], np.histogram(rows.action[acted], np.float32(ACTION_EDGES))[0]
    )
    ended = extra.repeats[acted & (extra.repeats > 0) & extra.switch]
    np.testing.assert_array_equal(
        told["rollout/run_lengths"], np.histogram(np.minimum(ended, 256), LENGTH_EDGES)[0]
    )
    assert not told["train/switch_probabilities"].any()  # nothing was learned


@pytest.mark.optimised
def test_histograms_change_no_bit_of_what_is_learned():
    """The same update, compiled with them and without."""
    algo, hp = make(hidden=(32, 32), reward_dim=2), scalars()
    given_ = midway(algo, hp), hp, taac_reference.windows(algo)

    def without(*x):
        state, metrics, _ = algo.update(*x)
        return state, {k: v for k, v in metrics.items() if not isinstance(v, Histogram)}

    learn = lambda update: jax.jit(update)(*given_, random.key(2), jnp.int32(0))[0]
    assert reference.difference(learn(algo.update), learn(without)) == 0


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
