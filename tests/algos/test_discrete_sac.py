"""Discrete SAC against an independent NumPy form, legal actions, and what users rely on beyond."""

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import ClassVar

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random

import thespis
from tests.algos import reference
from thespis.algos import DiscreteSAC
from thespis.algos.epsilon import epsilon_of
from thespis.algos.temperature import alpha_of
from thespis.core import Discrete, Spec, ThespisError, has_mask
from thespis.engine.loop import DeviceDriver, Loop
from thespis.envs.autoreset import Autoreset
from thespis.nn.distributions import Categorical
from thespis.nn.networks import Network
from thespis.tuning import hyper

HYPER = reference.HYPER | {
    "target_entropy": 0.6,
    "q_clip": 0.15,
    "epsilon_start": 0.8,
    "epsilon_end": 0.2,
    "epsilon_decay": 1000.0,
}


def make(n=3, masked=False, **options) -> DiscreteSAC:
    return DiscreteSAC(reference.discrete_spec(n, masked), **({"hidden": (4,)} | options))


def scalars(values=HYPER):
    return reference.scalars(DiscreteSAC.Hyper, values)


midway = reference.midway


# Choices that do not touch each other share an update.
OPTIONS = [
    {},
    {"n": 1, "store_logits": True},
    {"n": 2, "hidden": (4, 4), "critic_hidden": (4,), "temperature": "exp"},
    {"temperature": "linear", "critics": 1, "entropy_unit": "actions"},
    {"temperature": "fixed", "critics": 3, "reduce": "mean"},
    {"critic_entropy": False, "ignore_done": True},
    {"clip_q": True, "normalize_observations": True},
    {"clip_q": True, "critics": 1, "drop_truncated": True},
    DiscreteSAC.presets["di-engine"]["algo"] | {"hidden": (4,)},
]


FREE = [{}, {"n": 1}, {"entropy_unit": "actions", "normalize_observations": True}]


@pytest.mark.cases(6)
@pytest.mark.parametrize(
    "options", [o | {"masked": True} for o in OPTIONS] + FREE, ids=reference.named
)
def test_update_is_what_numpy_computes(options):
    algo, hp = make(**options), scalars()
    state, batch = midway(algo, hp), reference.choices(algo.actions, has_mask(algo.spec.obs))

    update = reference.update_of(algo)
    new, metrics, priorities = update(state, hp, batch, random.key(2), jnp.int32(0))

    inputs = (reference.plain(x) for x in (state, hp, batch))
    state_, metrics_, priorities_ = reference.discrete_sac(algo, *inputs)
    reference.close(new, state_)
    assert metrics.keys() == metrics_.keys()
    for name, value in metrics_.items():
        np.testing.assert_allclose(metrics[name], value, 1e-4, 1e-5, err_msg=name)
    valid = np.asarray(batch.valid) > 0
    np.testing.assert_allclose(np.asarray(priorities)[valid], priorities_[valid], 1e-4, 1e-6)


def test_a_batch_without_a_transition_to_learn_from_stays_finite():
    algo, hp = make(masked=True, clip_q=True, critics=1, drop_truncated=True), scalars()
    batch = reference.choices(masked=True)
    none = dataclasses.replace(batch, valid=jnp.asarray(np.zeros_like(batch.valid)))
    out = reference.update_of(algo)(midway(algo, hp), hp, none, random.key(2), jnp.int32(0))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(out))


def test_nothing_is_drawn_in_an_update():
    algo, hp, batch = make(), scalars(), reference.choices()
    state = midway(algo, hp)
    update = reference.update_of(algo)
    one, other = (update(state, hp, batch, random.key(i), jnp.int32(0)) for i in (2, 3))
    assert reference.difference(one, other) == 0


def test_the_actor_learns_from_critics_with_dropout():
    """Critics that do not learn are the same for all keys but for the units that are left out."""
    algo, batch = make(critic_network=Network(dropout=0.5)), reference.choices()
    hp = scalars(HYPER | {"critic_lr": 0.0})
    state, update = midway(algo, hp), reference.update_of(algo)
    one, other = (update(state, hp, batch, random.key(i), jnp.int32(0))[0] for i in (2, 3))
    assert reference.difference(one.critic.params, other.critic.params) == 0
    assert reference.difference(one.actor.params, other.actor.params) > 1e-4


# --- the temperature ------------------------------------------------------------------------


def test_linear_temperature_stops_at_zero_and_returns():
    algo, batch = make(temperature="linear"), reference.choices()
    update = reference.update_of(algo)

    def run(state, target_entropy, updates):
        hp = scalars(HYPER | {"alpha_lr": 0.5, "target_entropy": target_entropy})
        for i in range(updates):
            out = update(state, hp, batch, random.key(i), jnp.int32(i))
            assert all(np.isfinite(x).all() for x in jax.tree.leaves(out))
            state = out[0]
        return state

    cold = run(midway(algo, scalars()), -50.0, 3)  # far more entropy than wanted
    assert alpha_of("linear", cold.temperature, None) == 0.0
    fresh = reference.learned(np.float32(0))
    reborn = run(dataclasses.replace(cold, temperature=fresh), 50.0, 1)
    assert reborn.temperature.params > 0.0


@cache
def init_of(form="log"):
    return reference.quick(make(temperature=form).init)


def test_temperature_is_part_of_the_state_and_starts_at_alpha():
    for form, value in (("exp", np.log(0.3)), ("log", np.log(0.3)), ("linear", 0.3)):
        state = init_of(form)(random.key(0), scalars())
        np.testing.assert_allclose(state.temperature.params, value, rtol=1e-6)
        assert any(x is state.temperature.params for x in jax.tree.leaves(state))


# --- hyper-parameters are data --------------------------------------------------------------

BOLD = reference.BOLD
CHANGED = reference.CHANGED | {
    "target_entropy": 0.1,
    "q_clip": 0.4,
    "epsilon_start": 0.5,
    "epsilon_end": 0.1,
    "epsilon_decay": 300.0,
}
EFFECT = reference.EFFECT | {
    "q_clip": {"critic", "target", "actor"},
    "epsilon_start": {"epsilon"},
    "epsilon_end": {"epsilon"},
    "epsilon_decay": {"epsilon"},
}
PARTS = ("actor", "critic", "target", "temperature")


@pytest.fixture(scope="module")
def population():
    """Members that differ from the first in one hyper-parameter each, and one update of all."""
    algo = make(masked=True, clip_q=True)
    hps = reference.members(DiscreteSAC.Hyper, HYPER | BOLD, CHANGED)
    state, batch = midway(algo, scalars()), reference.choices(masked=True)
    update = reference.quick(jax.vmap(algo.update, in_axes=(None, 0, None, None, None)))
    new = update(state, hps, batch, random.key(2), jnp.int32(0))
    return algo, hps, state, batch, update, new


def test_each_hyper_parameter_changes_what_it_should_and_nothing_else(population):
    algo, hps, _, _, _, (new, _, _) = population
    names = reference.updating(DiscreteSAC.Hyper)
    assert EFFECT.keys() == CHANGED.keys() == names

    @reference.quick
    @jax.vmap
    def first(hp):
        return algo.init(random.key(0), hp).temperature, epsilon_of(
            algo.epsilon_schedule, hp, jnp.int32(250)
        )

    initial, epsilon = first(hps)
    parts = {p: getattr(new, p) for p in PARTS}
    parts |= {"initial temperature": initial, "epsilon": epsilon}
    assert reference.effects(parts, CHANGED) == EFFECT


def test_members_equal_themselves_alone(population):
    algo, hps, state, batch, _, new = population
    update = reference.update_of(algo)
    for i in range(len(CHANGED) + 1):
        hp = jax.tree.map(jnp.asarray, reference.member(hps, i))
        alone = update(state, hp, batch, random.key(2), jnp.int32(0))
        assert reference.difference(alone, reference.member(new, i)) < 2e-5


def test_new_hyper_parameters_compile_nothing(population):
    _, hps, state, batch, update, _ = population
    other = jax.tree.map(lambda x: jnp.asarray(np.float32(0.9) * x), hps)
    update(state, other, batch, random.key(2), jnp.int32(1))
    assert update._cache_size() <= 1  # 0 if others pushed it out


# --- acting ---------------------------------------------------------------------------------


def act(algo, mode, obs, step=0, key=1, hp=None):
    hp = scalars() if hp is None else hp
    memory = algo.memory(random.key(7), len(jax.tree.leaves(obs)[0]))
    given = reference.drawn(algo, hp), hp, memory, obs, random.key(key), jnp.int32(step)
    return jax.tree.map(np.asarray, act_of(algo, mode)(*given))


@cache
def act_of(algo, mode):
    return reference.quick(lambda *given: algo.act(*given, mode))


def logits_of(algo, obs):
    state = reference.drawn(algo, scalars())
    return reference.forward(reference.plain(state.actor.params), np.float64(obs))


def alike(n, *numbers):
    """n observations that are the same."""
    return np.tile(np.float32([numbers]), (n, 1))


def test_greedy_actions_have_the_greatest_logit():
    algo = make(store_logits=True)
    obs = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    action, _, extra = act(algo, "greedy", obs)
    logits = logits_of(algo, obs)
    np.testing.assert_array_equal(action, logits.argmax(-1))
    np.testing.assert_allclose(extra["logits"], logits, atol=1e-6)
    assert act(make(), "greedy", obs)[2] is None


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_exploring_actions_are_samples_of_the_policy_or_random(epsilon):
    """In the shares that epsilon says."""
    hp = scalars(HYPER | {"epsilon_start": epsilon})
    obs = alike(20_000, 2.0, -1.0)
    action, _, _ = act(make(hidden=()), "explore", obs, hp=hp)
    p = reference.chances(logits_of(make(hidden=()), obs[:1]), np.ones((1, 3), bool))[0]
    assert p.max() - p.min() > 0.3  # else nothing could be told apart
    shares = np.bincount(action, minlength=3) / 20_000
    np.testing.assert_allclose(shares, (1 - epsilon) * p + epsilon / 3, atol=0.02)


def test_each_environment_strays_for_itself():
    """With a policy that is sure of itself, about epsilon of the environments differ from it."""
    algo, hp = make(hidden=()), scalars()
    obs = alike(20_000, 900.0, -700.0)
    best = logits_of(algo, obs)[0].argmax()
    others = []
    for key in range(5):
        action, _, _ = act(algo, "explore", obs, key=key, hp=hp)
        others.append((action != best).mean())
    np.testing.assert_allclose(others, 0.8 * 2 / 3, atol=0.08)


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        ("linear", lambda x: 0.2 + 0.6 * (1 - x / 1000) if x < 1000 else 0.2),
        ("exponential", lambda x: 0.2 + 0.6 * np.exp(-x / 1000)),
    ],
)
def test_epsilon_follows_its_schedule_by_the_clock_of_rows(schedule, wanted):
    epsilon = reference.quick(partial(epsilon_of, schedule))
    for step in (0, 1, 250, 999, 1000, 1001, 50_000):
        np.testing.assert_allclose(epsilon(scalars(), step), wanted(step), rtol=1e-5)
    rising = scalars(HYPER | {"epsilon_start": 0.0, "epsilon_end": 1.0})
    assert epsilon(rising, 0) == 0.0
    obs = alike(20_000, 900.0, -700.0)
    early, late = (act(make(hidden=()), "explore", obs, step, hp=rising)[0] for step in (0, 10**6))
    assert len(np.unique(early)) == 1
    assert len(np.unique(late)) == 3


# --- legal actions --------------------------------------------------------------------------


@cache
def lured():
    """Actions of all modes by an actor that likes illegal actions best."""
    algo, hp = make(n=4, masked=True, hidden=()), scalars()
    state = reference.drawn(algo, hp)
    lure = -1e6 * np.eye(6, 4, dtype=np.float32)  # the mask comes first among the inputs
    weight = jnp.asarray(state.actor.params.weights[0] + lure)
    state = eqx.tree_at(lambda s: s.actor.params.weights[0], state, weight)

    def act(obs, key):
        memory = algo.memory(random.key(7), 8)
        one = lambda mode: algo.act(state, hp, memory, obs, random.clone(key), 0, mode)[0]
        return {mode: one(mode) for mode in ("random", "explore", "greedy")}

    return reference.quick(act)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=8, max_size=8),
    st.sampled_from([0.0, 1e-3, 1.0, 1e4, 1e12]),
    st.integers(0, 2**31 - 1),
)
def test_no_illegal_action_is_ever_taken(masks, size, seed):
    """Whatever the logits, the mode and the key."""
    legal = np.array(masks)
    legal[~legal.any(-1)] = True
    x = np.random.default_rng(seed).normal(0, size, (8, 2)).astype(np.float32)
    obs = {"action_mask": jnp.asarray(legal), "x": jnp.asarray(x)}
    for mode, action in lured()(obs, random.key(seed)).items():
        assert legal[np.arange(8), action].all(), mode


@pytest.mark.parametrize("mode", ["random", "explore"])
def test_random_actions_are_uniform_over_the_legal_ones(mode):
    algo, hp = make(n=4, masked=True), scalars(HYPER | {"epsilon_start": 1.0})
    masks = np.array([[1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 1, 1], [0, 0, 0, 1]], bool)
    obs = {"action_mask": jnp.asarray(np.repeat(masks, 4000, 0)), "x": alike(16_000, 1.0, 1.0)}
    action = act(algo, mode, obs, hp=hp)[0].reshape(4, 4000)
    for mask, drawn in zip(masks, action):
        shares = np.bincount(drawn, minlength=4) / 4000
        np.testing.assert_allclose(shares, mask / mask.sum(), atol=0.05)


@pytest.mark.parametrize("options", [{}, {"reduce": "mean"}, {"clip_q": True}], ids=reference.named)
def test_values_of_illegal_actions_never_matter(options):
    """Neither in targets nor in the actor: nothing is bootstrapped from them."""
    batch = reference.choices(masked=True)
    # `reduced` is given all values at the successors first, then those at the observations.
    masks = batch.next_obs["action_mask"], batch.obs["action_mask"]
    spec, hp = reference.discrete_spec(masked=True), scalars()
    state = midway(DiscreteSAC(spec, (4,), **options), hp)

    @reference.quick
    def update(garbage):
        """With these as the values of illegal actions."""
        queue = list(masks)

        class Spoilt(DiscreteSAC):
            def reduced(self, q):
                return super().reduced(jnp.where(queue.pop(0)[None], q, garbage))

        algo = Spoilt(spec, (4,), **options)
        new = algo.update(state, hp, batch, random.key(2), jnp.int32(0))
        assert not queue
        return new

    wanted = update(np.float32(0))
    for garbage in np.float32([1e6, -1e6, np.inf, np.nan]):
        got = update(garbage)
        np.testing.assert_equal(jax.tree.map(np.asarray, got), jax.tree.map(np.asarray, wanted))
    as_it_is = reference.update_of(DiscreteSAC(spec, (4,), **options))
    plain = as_it_is(state, hp, batch, random.key(2), jnp.int32(0))
    assert reference.difference(wanted, plain) < 1e-5


def test_the_entropy_target_counts_legal_actions_only():
    masks = np.array([[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]], bool)
    zeros = jnp.asarray(np.zeros((4, 4), np.float32))
    policy, hp = Categorical(zeros, jnp.asarray(masks)), scalars(HYPER | {"target_entropy": 0.5})
    wanted = lambda unit: make(n=4, entropy_unit=unit).target_entropies(hp, policy)
    np.testing.assert_allclose(wanted("log-actions"), 0.5 * np.log([4, 2, 1, 1]), atol=1e-6)
    np.testing.assert_allclose(wanted("actions"), [2, 1, 0.5, 0], atol=1e-6)


MASKS = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [1, 0, 1]], bool)


@dataclass(frozen=True)
class Doors:
    """Six rooms, known by the doors that are open. Door a pays a / 2 and leads on 1 + a rooms.

    A closed door pays 100 and ends the episode: an agent that takes one, or believes that it
    could, is found out.
    """

    limit: int = 7
    obs: ClassVar = {
        "action_mask": jax.ShapeDtypeStruct((3,), bool),
        "bias": jax.ShapeDtypeStruct((1,), jnp.float32),
    }
    action: ClassVar = Discrete(3)

    def start(self, key):
        return random.randint(key, (), 0, 6)

    def observe(self, room):
        return {"action_mask": jnp.asarray(MASKS)[room], "bias": jnp.ones(1)}

    def step(self, room, action):
        open_ = jnp.asarray(MASKS)[room, action]
        reward = jnp.where(open_, 0.5 * action.astype(jnp.float32), 100.0)
        return (room + 1 + action) % 6, reward, ~open_

    def q(self, gamma):
        """[room, door] by value iteration over open doors."""
        q, doors = np.zeros((6, 3)), np.arange(3)
        for _ in range(500):
            best = np.where(MASKS, q, -np.inf).max(-1)
            q = doors / 2 + gamma * best[(np.arange(6)[:, None] + 1 + doors) % 6]
        return q


@pytest.fixture(scope="module")
def doors():
    """Warm-up with random actions, then learning, in the loop that users run."""
    env = Autoreset(Doors())
    algo = DiscreteSAC(env.spec, hidden=(32,), batch_size=64, temperature="fixed")
    loop = Loop(algo, env, envs=16, capacity=2500, updates_per_step=Fraction(1, 16))
    given_ = {"alpha": 0.02, "gamma": 0.7, "tau": 0.05, "critic_lr": 3e-3, "actor_lr": 3e-3}
    hps = hyper.fill(DiscreteSAC.Hyper, given_ | {"epsilon_start": 0.3, "epsilon_end": 0.3})
    seeds = jnp.arange(1)
    driver = DeviceDriver(loop, seeds)
    learner = driver.init(seeds, hps)
    learner = driver.run(learner, hps, None, seeds, 100, "random", False)
    return algo, driver.run(learner, hps, None, seeds, 2000, "explore", True)


def test_no_illegal_action_is_stored_by_the_loop(doors):
    _, learner = doors
    rows = jax.tree.map(lambda x: np.asarray(x)[:2100, 0], learner.replay.rows)
    taken = np.take_along_axis(rows.obs["action_mask"], rows.action[..., None], -1)
    assert taken.all()
    assert not rows.terminated.any()
    assert rows.reward.max() <= 1
    for mask in MASKS:  # and every legal one is
        here = (rows.obs["action_mask"] == mask).all(-1)
        assert set(rows.action[here]) == set(np.flatnonzero(mask))
    assert rows.obs["action_mask"].dtype == bool


def test_values_behind_masks_are_known(doors):
    """Those of legal actions; they would be higher if illegal ones were believed to be open."""
    algo, learner = doors
    state = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[0]), learner.state)

    @reference.quick
    def judge():
        obs = jax.vmap(Doors().observe)(jnp.arange(6))
        hp, greedy = DiscreteSAC.Hyper(), (random.key(0), jnp.int32(0), "greedy")
        q = state.critic.params(algo.see(state, obs))
        return q, algo.act(state, hp, None, obs, *greedy)[0]

    q, action = map(np.asarray, judge())
    wanted = Doors().q(0.7)
    for found in q:
        np.testing.assert_allclose(found[MASKS], wanted[MASKS], atol=0.1)
    best = np.where(MASKS, wanted, -np.inf).argmax(-1)
    np.testing.assert_array_equal(action, best)


class Strict(gymnasium.Env):
    """Refuses illegal actions; which are legal changes with every step."""

    observation_space = gymnasium.spaces.Dict(
        action_mask=gymnasium.spaces.MultiBinary(3), where=gymnasium.spaces.Box(0, 1, (2,))
    )
    action_space = gymnasium.spaces.Discrete(3, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.seen(), {}

    def seen(self):
        self.legal = self.np_random.permuted([1, self.np_random.integers(2), 0]).astype(np.int8)
        if self.time == 10:
            self.legal[:] = 0  # nothing is legal after the end
        return {"action_mask": self.legal, "where": np.float32([self.time / 10, 1])}

    def step(self, action):
        assert self.action_space.contains(action)
        assert self.legal[action - 1], "an illegal action"
        self.time += 1
        return self.seen(), float(action), self.time == 10, False, {}


@pytest.mark.thorough
@pytest.mark.usefixtures("undrawn")
def test_a_gymnasium_environment_that_refuses_illegal_actions_is_trained_and_evaluated(tmp_path):
    small = {"hidden": (8,), "batch_size": 16, "learning_starts": 100, "epsilon_start": 0.5}
    given_ = small | {"steps": 200, "eval_freq": 100, "eval_episodes": 2, "envs": 2}
    run = thespis.train("discrete-sac", env=Strict, out=tmp_path, progress=False, **given_)
    assert run.status["state"] == "done"
    policy, env = run.policy(stochastic=True), Strict()
    obs, _ = env.reset(seed=0)
    for _ in range(10):
        obs, *_ = env.step(policy(obs))


# --- beginnings -----------------------------------------------------------------------------


def test_the_target_starts_as_the_critic():
    state = init_of()(random.key(0), scalars())
    assert reference.difference(state.target, state.critic.params) == 0


def test_continuous_actions_are_refused_and_an_algorithm_for_them_named():
    with pytest.raises(ThespisError, match="needs discrete actions, not .*: take sac or td3"):
        DiscreteSAC(reference.spec())


def test_a_mask_of_another_size_is_refused():
    spec = reference.discrete_spec(3, masked=True)
    with pytest.raises(ThespisError, match="action_mask of observations has shape .3,., but .* 4"):
        DiscreteSAC(Spec(spec.obs, Discrete(4)))
