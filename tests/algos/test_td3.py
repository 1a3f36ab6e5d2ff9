"""TD3 against an independent NumPy form over several updates, and its delay as a real branch."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from thespis.algos import TD3
from thespis.core import ThespisError

HYPER = {
    "actor_lr": 0.03,
    "critic_lr": 0.05,
    "gamma": 0.9,
    "tau": 0.1,
    "reward_scale": 1.7,
    "noise": 0.3,
    "target_noise": 0.6,
    "noise_clip": 0.4,  # of ten draws, some are clipped and some are not
}


def make(action=2, **options) -> TD3:
    return TD3(reference.spec(action=action), **({"hidden": (4,)} | options))


def scalars(values=HYPER):
    return reference.scalars(TD3.Hyper, values)


def midway(algo: TD3, hp):
    """A state as found in training: moments and targets of their own, some actions saturated."""
    state = reference.drawn(algo, hp)
    bold = jax.tree.map(lambda x: jnp.asarray(2 * np.asarray(x)), state.target_actor)
    return dataclasses.replace(state, target_actor=bold)


@pytest.fixture
def branching(monkeypatch):
    """Branches are taken in Python, as everything else outside of `jit`: it compiles less."""
    take = lambda test, yes, no, *args: yes(*args) if test else no(*args)
    monkeypatch.setattr(jax.lax, "cond", take)


OPTIONS = [
    {"delay": 2},
    {"delay": 3, "order": "simultaneous"},
    {"delay": 1, "critics": 3, "ignore_done": True, "normalize_observations": True},
    TD3.presets["qdax"]["algo"],
]
ALONE = [
    {"delay": 1, "action": 1},
    {"delay": 3, "critic_target": "every"},
    {"delay": 2, "order": "simultaneous", "critic_target": "every"},
    {"delay": 1, "critics": 1},
    {"delay": 1, "critics": 3, "ignore_done": True},
    {"delay": 1, "drop_truncated": True},
    {"delay": 1, "normalize_observations": True},
]


@pytest.mark.parametrize("options", OPTIONS + reference.thorough(ALONE), ids=reference.named)
def test_updates_are_what_numpy_computes(options, monkeypatch, branching):
    """From the first update to just after the second of the actor."""
    algo, hp = make(**options), scalars()
    n = algo.spec.action.size
    state, batch = midway(algo, hp), reference.transitions(n)
    wanted, hp_, batch_ = (reference.plain(x) for x in (state, hp, batch))
    noise = reference.fixed_noise(monkeypatch, n)
    valid = batch.valid > 0

    for updates in range(algo.delay + 1):
        step = jnp.int32(updates)
        state, metrics, priorities = algo.update(state, hp, batch, random.key(2), step)
        wanted, metrics_, priorities_ = reference.td3(algo, wanted, hp_, batch_, noise, updates)
        reference.close(state, wanted)
        np.testing.assert_allclose(priorities[valid], priorities_[valid], 2e-4)

        assert metrics.keys() == metrics_.keys()
        loss, loss_ = metrics.pop("actor_loss"), metrics_.pop("actor_loss")
        # A skipped update counts nothing and adds zero, so that means stay true.
        assert loss.count == (0.0 if loss_ is None else 1.0)
        np.testing.assert_allclose(loss.total, 0.0 if loss_ is None else loss_, 1e-4, 1e-5)
        for name, value in metrics_.items():
            np.testing.assert_allclose(metrics[name], value, 2e-4, 1e-5, err_msg=name)


def test_targets_that_follow_rarely_do_so_with_the_actor():
    with pytest.raises(ThespisError, match="target_every = 3: .* give a multiple of 2, the delay"):
        make(target_every=3)
    for options in ({"target_every": 4}, {"target_every": 3, "critic_target": "every"}, {}):
        assert make(**options).delay == 2


@pytest.mark.parametrize("delay", [1, 3])
def test_the_actor_moves_at_every_delay_th_update_and_not_before(delay, branching):
    algo, hp = make(delay=delay), scalars()
    state, batch = midway(algo, hp), reference.transitions()
    moved = []
    for updates in range(2 * delay):
        new, metrics, _ = algo.update(state, hp, batch, random.key(updates), jnp.int32(updates))
        assert all(np.isfinite(x).all() for x in jax.tree.leaves((new, metrics)))
        parts = lambda s: (s.actor, s.target_actor, s.target_critic)
        pairs = zip(parts(new), parts(state))
        changed = {reference.difference(a, b) > 0 for a, b in pairs}
        assert len(changed) == 1  # actor, its optimiser and both targets move together
        moved.append(changed.pop())
        state = new
    assert moved == 2 * ([False] * (delay - 1) + [True])


# --- the delay is a branch ------------------------------------------------------------------


def inner(jaxpr):
    """The programs inside a program's equations, with the primitive that holds them."""
    for equation in jaxpr.eqns:
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            value = getattr(value, "jaxpr", value)
            if hasattr(value, "eqns"):
                yield equation.primitive.name, value


def products(jaxpr, branches=True) -> int:
    """Matrix products, those inside of branches too or not."""
    here = sum(e.primitive.name == "dot_general" for e in jaxpr.eqns)
    within = (p for name, p in inner(jaxpr) if branches or name != "cond")
    return here + sum(products(p, branches) for p in within)


def branches(jaxpr) -> list:
    """The branches of every conditional, as lists of programs."""
    found = []
    for name, program in inner(jaxpr):
        found += [program] if name == "cond" else branches(program)
    return found


def alone(algo):
    return algo.update


def mapped(algo):
    """Members one after another, as on CPUs; the step is shared."""

    def update(states, hps, batch, keys, step):
        one = lambda x: algo.update(x[0], x[1], batch, x[2], step)
        return jax.lax.map(one, (states, hps, keys))

    return update


def side_by_side(algo):
    """Members at once, as on accelerators; the step is shared."""
    return jax.vmap(algo.update, in_axes=(0, 0, None, 0, None))


@pytest.mark.parametrize("way", [alone, mapped, side_by_side])
@pytest.mark.parametrize("critic_target", ["delayed", "every"])
def test_skipped_updates_compute_no_gradient_of_the_actor(way, critic_target):
    def program(hidden):
        algo = make(hidden=hidden, critic_hidden=(4,), critic_target=critic_target)
        hp, key = scalars(), random.key(2)
        state = algo.init(random.key(0), hp)
        if way is not alone:
            state, hp = jax.tree.map(lambda x: np.stack([x, x]), (state, hp))
            key = random.split(key)
        args = (state, hp, reference.transitions(), key, jnp.int32(0))
        return jax.make_jaxpr(way(algo))(*args).jaxpr

    shallow, deep = program((4,)), program((4, 4))
    for each in (shallow, deep):
        skip, learn = sorted(products(p) for p in branches(each))
        assert skip == 0
        assert learn >= 9  # forward and backward through the actor and a critic, of two layers
    # A deeper actor adds one product outside of the branches: the target's forward pass.
    assert products(deep, branches=False) == products(shallow, branches=False) + 1


# --- hyper-parameters are data --------------------------------------------------------------

# Great steps, so that remote effects show.
BOLD = {"actor_lr": 0.5, "critic_lr": 0.5, "tau": 0.5, "noise_clip": 1.0}
CHANGED = {
    "actor_lr": 0.1,
    "critic_lr": 0.1,
    "gamma": 0.5,
    "tau": 0.2,
    "reward_scale": 0.6,
    "noise": 0.7,
    "target_noise": 0.05,
    "noise_clip": 0.1,
}
LEARNED = {"critic", "target_critic", "actor", "target_actor"}
EFFECT = {
    "actor_lr": {"actor", "target_actor"},
    "critic_lr": LEARNED,
    "gamma": LEARNED,
    "tau": {"target_actor", "target_critic"},
    "reward_scale": LEARNED,
    "noise": {"action"},
    "target_noise": LEARNED,
    "noise_clip": LEARNED,
}


@pytest.fixture(scope="module")
def population():
    """Members that differ from the first in one hyper-parameter each, and one update of all."""
    algo = make()
    hps = reference.members(TD3.Hyper, HYPER | BOLD, CHANGED)
    state, batch = midway(algo, scalars()), reference.transitions()
    update = jax.jit(jax.vmap(algo.update, in_axes=(None, 0, None, None, None)))
    new = update(state, hps, batch, random.key(2), jnp.int32(1))
    return algo, hps, state, batch, update, new


def test_each_hyper_parameter_changes_what_it_should_and_nothing_else(population):
    algo, hps, state, batch, _, (new, _, _) = population
    of_choices = {"noise_low"}  # tested with noise_per_episode
    assert EFFECT.keys() == CHANGED.keys() == reference.updating(TD3.Hyper) - of_choices
    explore = lambda hp: algo.act(
        state, hp, None, batch.obs, random.key(3), jnp.int32(0), "explore"
    )[0]
    parts = {p: getattr(new, p) for p in LEARNED} | {"action": jax.vmap(explore)(hps)}
    assert reference.effects(parts, CHANGED) == EFFECT


def test_members_equal_themselves_alone(population, branching):
    algo, hps, state, batch, _, new = population
    for i in range(len(CHANGED) + 1):
        hp = jax.tree.map(jnp.asarray, reference.member(hps, i))
        alone = algo.update(state, hp, batch, random.key(2), jnp.int32(1))
        assert reference.difference(alone, reference.member(new, i)) < 2e-5


def test_new_hyper_parameters_and_steps_compile_nothing(population):
    _, hps, state, batch, update, _ = population
    update(state, jax.tree.map(lambda x: x * 0.9, hps), batch, random.key(2), jnp.int32(2))
    assert update._cache_size() <= 1  # 0 if others pushed it out


def test_the_compiled_program_keeps_the_branch(population):
    _, hps, state, batch, update, _ = population
    program = update.lower(state, hps, batch, random.key(2), jnp.int32(1)).compile().as_text()
    assert re.search(r"\bconditional\(", program)


# --- acting ---------------------------------------------------------------------------------


def test_exploration_adds_noise_and_stays_within_bounds():
    algo, hp = make(), scalars()
    state = midway(algo, hp)
    obs = jnp.ones((4000, 2))
    greedy, memory, extra = algo.act(state, hp, None, obs, random.key(1), jnp.int32(0), "greedy")
    out = reference.forward(reference.plain(state.actor.params), np.ones((1, 2)))
    np.testing.assert_allclose(greedy, np.tanh(out).repeat(4000, 0), atol=1e-6)
    assert memory is None
    assert extra is None

    action, _, _ = algo.act(state, hp, None, obs, random.key(1), jnp.int32(0), "explore")
    noise = np.asarray(action - greedy)
    np.testing.assert_allclose(noise.mean(0), 0, atol=0.03)
    np.testing.assert_allclose(noise.std(0), 0.3, atol=0.02)

    wild = scalars(HYPER | {"noise": 3.0})
    action, _, _ = algo.act(state, wild, None, obs, random.key(1), jnp.int32(0), "explore")
    assert abs(action).max() == 1.0
    still = scalars(HYPER | {"noise": 0.0})
    action, _, _ = algo.act(state, still, None, obs, random.key(1), jnp.int32(0), "explore")
    assert reference.difference(action, greedy) == 0


# --- beginnings -----------------------------------------------------------------------------


def test_targets_start_as_their_networks():
    state = make().init(random.key(0), scalars())
    assert reference.difference(state.target_actor, state.actor.params) == 0
    assert reference.difference(state.target_critic, state.critic.params) == 0


def test_every_episode_may_have_noise_of_its_own():
    """FastTD3: standard deviations are drawn between noise_low and noise with each memory."""
    algo = TD3(reference.spec(), hidden=(4,), noise_per_episode=True)
    hp = reference.scalars(TD3.Hyper, {"noise": 0.4, "noise_low": 0.1})
    state = reference.quick(algo.init)(random.key(0), hp)
    n, draws = 3, 4000
    memory, obs = algo.memory(random.key(1), n), jnp.zeros((n, *algo.spec.obs.shape))
    act = lambda key, mode: algo.act(state, hp, memory, obs, key, jnp.int32(0), mode)
    noisy, after, _ = jax.jit(jax.vmap(lambda key: act(key, "explore")))(
        random.split(random.key(2), draws)
    )
    assert reference.difference(jax.tree.map(lambda x: x[0], after), memory) == 0
    wanted = 0.1 + np.asarray(memory.share) * 0.3
    found = (np.asarray(noisy) - np.asarray(act(random.key(3), "greedy")[0])).std((0, 2))
    np.testing.assert_allclose(found, wanted, rtol=0.05)
    assert len(set(np.asarray(memory.share))) == n
    assert (np.asarray(algo.memory(random.key(4), n).share) != np.asarray(memory.share)).all()
