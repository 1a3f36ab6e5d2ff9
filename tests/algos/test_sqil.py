"""SQIL: what its batches are made of, that it learns like SAC from them, and what it reports."""

import dataclasses
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from thespis.algos import SAC, SQIL, DiscreteSAC
from thespis.core import Box, Row, Spec, ThespisError
from thespis.engine.loop import DeviceDriver, Loop
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import CartPole
from thespis.replay import demonstrations
from thespis.replay.demonstrations import Episode
from thespis.replay.ring import Replay
from thespis.tuning import hyper

KINDS = {"continuous": reference.spec(), "discrete": reference.discrete_spec()}
HYPER = reference.HYPER | {"entropy_share": 0.6}
kinds = pytest.mark.parametrize("kind", KINDS)
SILENT = {"monitor_gradients": False, "monitor_policy": False}
objectives = pytest.mark.parametrize("objective", ["iq", "ls-iq"])


def make(kind, **options) -> SQIL:
    return SQIL(KINDS[kind], **({"hidden": (4,)} | options))


def scalars(**changes):
    return reference.scalars(SQIL.Hyper, HYPER | changes)


def batch_of(kind):
    """Of five entries each; SAC's logits of discrete behaviour are not stored here."""
    b = reference.transitions() if kind == "continuous" else reference.choices()
    return dataclasses.replace(b, extra=None)


def midway(algo: SQIL, hp):
    """A state as found in training, whose temperature is not that of the hyper-parameter."""
    state = reference.drawn(algo, hp)
    if state.temperature is None:
        return state
    x = np.float32(0.3 if algo.temperature == "linear" else np.log(0.3))
    return dataclasses.replace(state, temperature=reference.learned(x))


# --- batches --------------------------------------------------------------------------------

# Rows observe [who, time]; 1 is the agent and 2 the demonstrations.
ENDS = {1: {3: "terminated", 8: "truncated"}, 2: {5: "truncated", 9: "terminated"}}


def rows_of(who: int, reward: float, kind: str = "continuous"):
    """12 rows of two episodes and a beginning, in a ring of one member and environment."""
    time = np.arange(12)
    ring = lambda x: jnp.asarray(np.asarray(x)[:, None, None])
    flag = lambda name: ring([ENDS[who].get(t) == name for t in time])
    obs = np.stack([np.full(12, who), time], -1).astype(np.float32)
    action = obs / 20 if kind == "continuous" else np.int32(time % 3)
    pay = np.full(12, reward, np.float32)
    row = Row(ring(obs), ring(pay), flag("terminated"), flag("truncated"), ring(action))
    return Replay(row, jnp.int32(0), jnp.int32(12)).view(jnp.int32(0))


def drawn(algo, reward=7.0, kind="continuous", seed=0, **hypers):
    own, shown = rows_of(1, reward, kind), rows_of(2, -reward, kind)
    given = own, shown, scalars(**hypers), random.key(seed), jnp.int32(0)
    return jax.tree.map(np.asarray, sample_of(algo)(*given))


@cache
def sample_of(algo):
    return reference.quick(algo.sample)


@kinds
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("absorbing", [True, False])
def test_batches_are_half_the_agents_and_half_demonstrated_worth_0_and_1(kind, n_step, absorbing):
    algo = make(kind, batch_size=64, n_step=n_step, absorbing=absorbing)
    b = drawn(algo, kind=kind)
    np.testing.assert_array_equal(b.obs[:, 0], [1] * 32 + [2] * 32)  # the agent first
    for i in np.flatnonzero(b.valid):
        who, time = b.obs[i].astype(int)
        ends = [t for t in ENDS[who] if t > time]
        steps = min([n_step, *(t - time for t in ends)])
        last = time + steps
        ended = ENDS[who].get(last) == "terminated"
        value = sum(0.9**k for k in range(steps)) + absorbing * ended * 0.9**steps / (1 - 0.9)
        np.testing.assert_allclose(b.reward[i], value if who == 2 else 0, rtol=1e-5)
        np.testing.assert_allclose(b.next_obs[i], [who, last])
        assert (b.steps[i], b.terminated[i]) == (steps, ended)
    assert (b.reward[:32] == 0).all()
    assert {(w, t) for w, t in b.obs[b.valid == 0]} <= {(w, t) for w in ENDS for t in ENDS[w]}


def test_demonstrations_have_no_priority_to_give_back():
    """Those of the agent's rows follow the updates, and no other row's."""
    algo = make("continuous", batch_size=16, prioritized_replay=True)
    own = rows_of(1, 0.0, "continuous").ring.rows
    at = lambda t: jax.tree.map(lambda x: np.asarray(x)[t], own)
    replay, add = Replay.empty(12, at(0), algo.rule(1)), reference.quick(Replay.add)
    for t in range(12):
        replay = add(replay, at(t), alpha=jnp.ones(1))
    view = replay.view(jnp.int32(0), jnp.float32(0.4))
    shown = rows_of(2, 0.0, "continuous")
    b = sample_of(algo)(view, shown, scalars(), random.key(0), jnp.int32(0))
    row = np.asarray(b.drawn.row)
    assert (row[:8] >= 0).all()
    found = jnp.where(jnp.arange(16) < 8, 5.0, 99.0)[None]  # agent's, then demonstrations'
    lead = lambda x: jax.tree.map(lambda leaf: leaf[None], x)
    back = reference.quick(type(replay.priorities).update)
    after = back(replay.priorities, lead(b.drawn), found, jnp.ones(1))
    weight, before = (np.asarray(x.weight)[:, 0, 0] for x in (after, replay.priorities))
    drawn = np.isin(np.arange(12), row[:8])
    np.testing.assert_allclose(weight[drawn], 5, rtol=1e-4)
    np.testing.assert_array_equal(weight[~drawn], before[~drawn])


@kinds
def test_no_reward_of_the_environment_or_of_a_file_reaches_a_batch(kind):
    algo = make(kind, batch_size=32, n_step=2)
    clean = drawn(algo, 0.0, kind)
    for poison in (1e9, np.nan, np.inf):
        assert reference.difference(drawn(algo, poison, kind), clean) == 0


@objectives
@pytest.mark.parametrize("absorbing", [True, False])
def test_other_objectives_have_rewards_of_their_own(objective, absorbing):
    """IQ-Learn: only absorbing states are worth something. LS-IQ: -1, or 1 for ever."""
    algo = make("continuous", batch_size=64, objective=objective, absorbing=absorbing)
    b = drawn(algo)
    valid, shown = b.valid > 0, np.arange(64) >= 32
    ends = absorbing * b.terminated * 0.9 / (1 - 0.9)
    if objective == "iq":
        wanted = np.where(shown, ends, -ends)
    else:
        wanted = np.where(shown, 1 / (1 - 0.9), -(1 + ends))
        assert (0.9999 ** b.steps[shown] == 0).all()  # so that nothing is added to it
    assert b.terminated[valid & shown].any()
    assert b.terminated[valid & ~shown].any()
    np.testing.assert_allclose(b.reward[valid], wanted[valid], rtol=1e-5)


@objectives
def test_other_objectives_see_no_reward_of_the_environment_or_of_a_file(objective):
    algo = make("continuous", batch_size=32, objective=objective)
    assert reference.difference(drawn(algo, np.nan), drawn(algo, 0.0)) == 0


def test_implied_rewards_are_of_single_steps():
    with pytest.raises(ThespisError, match="n_step = 3: objective iq .* take objective ls-iq"):
        make("continuous", n_step=3, objective="iq")


def test_vector_rewards_are_ignored_as_well():
    spec = dataclasses.replace(KINDS["continuous"], reward_dim=3)
    algo = SQIL(spec, hidden=(4,))
    update = lambda x: reference.update_of(x)(*given(x, batch_of("continuous")))[0]
    assert reference.difference(update(algo), update(make("continuous"))) == 0


def test_a_bootstrap_through_ends_needs_no_absorbing_state():
    algo = make("continuous", batch_size=64, ignore_done=True)
    b = drawn(algo)
    assert set(np.unique(b.reward)) == {0.0, 1.0}


def test_an_odd_batch_is_refused():
    with pytest.raises(ThespisError, match="batch_size = 7: give an even number"):
        make("continuous", batch_size=7)


# --- updates --------------------------------------------------------------------------------


def given(algo, b, step=0, **hypers):
    return midway(algo, scalars(**hypers)), scalars(**hypers), b, random.key(2), jnp.int32(step)


@cache
def updated(kind, step=0, **options):
    algo = make(kind, **options)
    return reference.update_of(algo)(*given(algo, batch_of(kind), step))


def base_of(kind, algo, hp):
    """SAC for these actions, and its own hyper-parameters."""
    options = {"hidden": (4,), "temperature": algo.temperature}
    values = {name: x for name, x in vars(hp).items() if name != "entropy_share"}
    if kind == "continuous":
        return SAC(algo.spec, **options), SAC.Hyper(**values)
    values |= {"target_entropy": hp.entropy_share}
    return DiscreteSAC(algo.spec, **options), DiscreteSAC.Hyper(**values)


@pytest.mark.parametrize(
    ("kind", "temperature"),
    [
        *(("continuous", form) for form in ("fixed", "log")),
        *(pytest.param("continuous", form, marks=pytest.mark.slow) for form in ("exp", "linear")),
        pytest.param("discrete", "fixed", marks=pytest.mark.slow),
        ("discrete", "log"),
    ],
)
def test_updates_are_those_of_sac_whatever_the_temperature(kind, temperature, monkeypatch):
    """SAC's own are compared with NumPy elsewhere; here the noise is the same for both."""
    reference.fixed_noise(monkeypatch)
    algo = make(kind, temperature=temperature, monitor_gradients=False)
    state, hp, b, key, step = given(algo, batch_of(kind))
    base, base_hp = base_of(kind, algo, hp)

    @reference.quick
    def both(state, b, key, step):
        theirs = base.update(state, base_hp, b, random.clone(key), step)
        return algo.update(state, hp, b, key, step), theirs

    (new, metrics, priorities), (new_, metrics_, priorities_) = both(state, b, key, step)
    assert reference.difference(new, new_) == 0
    assert reference.difference(priorities, priorities_) == 0
    common = metrics.keys() & metrics_.keys() - {"q_value_1", "q_value_2"}
    assert {"actor_loss", "critic_loss", "ent_coef_loss", "total_loss"} <= common
    for name in common:
        np.testing.assert_array_equal(metrics[name], metrics_[name], err_msg=name)


@pytest.mark.parametrize(
    "options",
    [
        {"std": "softplus", "temperature": "exp"},
        {"log_derivative": "epsilon"},
        SQIL.presets["di-engine"]["algo"] | {"hidden": (4,)},
    ],
    ids=reference.named,
)
def test_continuous_policies_have_the_forms_of_sac(options, monkeypatch):
    """One update with each, in NumPy."""
    algo = make("continuous", **options)
    state, hp, b, key, step = given(algo, batch_of("continuous"))
    noise = reference.fixed_noise(monkeypatch)
    new, metrics, priorities = reference.quick(algo.update)(state, hp, b, key, step)
    forms = SAC(
        algo.spec, **{"temperature": "fixed"} | {k: options[k] for k in FORMS & options.keys()}
    )
    inputs = (reference.plain(x) for x in (state, hp, b))
    wanted = reference.sac(forms, *inputs, noise)
    reference.close(new, wanted[0])
    for name in ("actor_loss", "critic_loss", "ent_coef_loss", "td_error", "log_prob"):
        np.testing.assert_allclose(metrics[name], wanted[1][name], 1e-4, 1e-5, err_msg=name)
    valid = np.asarray(b.valid) > 0
    np.testing.assert_allclose(np.asarray(priorities)[valid], wanted[2][valid], 1e-4, 1e-5)


FORMS = {"std", "log_derivative", "temperature"}


def test_standard_deviations_stay_within_their_range():
    base = make("continuous", std="tanh", log_std_range=(-3.0, 1.0)).base
    log_std = base.distribution(jnp.array([[0.0, 0.0, -99.0, 99.0]])).log_std
    np.testing.assert_allclose(log_std, [[-3, 1]])


def test_the_actors_last_layer_is_redrawn_within_init_w():
    of = lambda w: reference.quick(make("continuous", init_w=w).init)(random.key(0), scalars())
    small, usual = of(0.003), of(None)
    net = small.actor.params
    last = np.append(net.weights[-1], net.biases[-1])
    assert 0.0025 < abs(last).max() <= 0.003
    same = lambda s: (s.actor.params.weights[0], s.actor.params.biases[0], s.critic, s.target)
    assert reference.difference(same(small), same(usual)) == 0


@kinds
def test_the_policy_is_stored_with_the_agents_rows_alone(kind):
    """As NumPy computes it; batches, half of which nobody has stored a policy with, have none."""
    algo, hp = make(kind, store_policy=True, batch_size=8), scalars()
    state, obs = midway(algo, hp), np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    explore = lambda algo, *x: algo.act(*x, random.key(1), jnp.int32(0), "explore")
    play = lambda algo: reference.quick(partial(explore, algo))(state, hp, None, obs)
    stored = play(algo)[2]
    out = reference.forward(reference.plain(state.actor.params), np.float64(obs))
    wanted = {"logits": out}
    if kind == "continuous":
        wanted = {"mu": out[:, :2], "sigma": np.exp(np.clip(out[:, 2:], -20, 2))}
    assert stored.keys() == wanted.keys()
    for name, x in wanted.items():
        np.testing.assert_allclose(stored[name], x, 1e-5, 1e-6)
    assert play(make(kind))[2] is None

    own, shown = rows_of(1, 7.0, kind), rows_of(2, 7.0, kind)
    zeros = lambda x: jnp.asarray(np.zeros((12, 1, 1, x.shape[-1]), np.float32))
    blank = {name: zeros(x) for name, x in stored.items()}
    own = eqx.tree_at(lambda r: r.ring.rows.extra, own, blank, is_leaf=lambda x: x is None)
    b = reference.quick(algo.sample)(own, shown, hp, random.key(0), jnp.int32(0))
    assert b.extra is None
    one, other = (updated(kind, **options) for options in ({"store_policy": True}, {}))
    assert reference.difference(one, other) == 0  # and it changes nothing


@kinds
@objectives
def test_critics_learn_the_objective(kind, objective, monkeypatch):
    """The papers' losses in NumPy, targets and entropies and all."""
    algo = make(kind, objective=objective, **SILENT)
    small = {"reward_scale": 0.02} if objective == "ls-iq" else {}  # so that values are bounded
    b, shown = batch_of(kind), np.arange(10) >= 5
    if objective == "ls-iq":
        b = dataclasses.replace(b, steps=jnp.asarray(np.where(shown, np.float32(1e9), b.steps)))
    state, hp, b, key, step = given(algo, b, **small)
    noise = reference.fixed_noise(monkeypatch)
    new, metrics, _ = reference.quick(algo.update)(state, hp, b, key, step)

    s, b = reference.plain(state), reference.plain(b)
    scale, valid = float(hp.reward_scale), b["valid"]

    def values(nets, obs, action=None):
        """Q_i(s, a), or V_i(s) of the policy and its entropy, times the temperature."""
        out = reference.forward(s["actor"].params, obs)
        if kind == "discrete":
            q = np.stack([reference.forward(net, obs) for net in nets])
            if action is not None:
                return q[:, np.arange(10), action.astype(int)]
            p = np.exp(out) / np.exp(out).sum(-1, keepdims=True)
            return (p * q).sum(-1), -0.3 * (p * np.log(p)).sum(-1), p, q
        if action is not None:
            return reference.values(nets, obs, action)
        action, log_p = reference.tanh_gaussian(out, "exp", "exact", noise)
        return reference.values(nets, obs, action), -0.3 * log_p, None, None

    value, bonus, p, q = values(s["target"], b["next_obs"])
    next_value = value.min(0) + bonus if p is None else (p * q.min(0)).sum(-1) + bonus
    if objective == "ls-iq":
        most = scale / (1 - 0.9)
        assert (np.abs(next_value) > most).any()
        next_value = np.clip(next_value, -most, most)
    alive = 1 - b["terminated"]
    target = scale * b["reward"] + np.power(0.9, b["steps"]) * alive * next_value

    def loss(critics):
        implied = values(critics, b["obs"], b["action"]) - target
        squares = reference.averaged(b["weight"] * implied**2, valid)
        if objective == "ls-iq":
            return squares.sum()
        now, entropy, *_ = values(critics, b["obs"])
        rise = reference.averaged(now + entropy - target, valid)
        demonstrated = reference.averaged(implied, valid * shown)
        return (squares - scale * (demonstrated - rise)).sum()

    critic, _ = s["critic"].descend(loss, HYPER["critic_lr"])
    ours, theirs = (jax.tree.leaves(x) for x in (reference.plain(new.critic), critic))
    for a, w in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, w, 2e-3, 2e-5)
    assert metrics["critic_loss"].shape == ()


@kinds
def test_what_is_reported_is_what_numpy_computes(kind, monkeypatch):
    algo = make(kind)
    state, hp, b, key, step = given(algo, batch_of(kind))
    noise = reference.fixed_noise(monkeypatch)
    new, metrics, priorities = reference.quick(algo.update)(state, hp, b, key, step)

    s, critic, b_ = (reference.plain(x) for x in (state, new.critic.params, b))
    agent, demo = (np.arange(10) < 5) * b_["valid"], (np.arange(10) >= 5) * b_["valid"]
    obs, valid, average = b_["obs"], b_["valid"], reference.averaged
    index = np.arange(10), b_["action"].astype(int) if kind == "discrete" else None

    def q_of(nets, action):
        if kind == "discrete":
            return np.stack([reference.forward(net, obs) for net in nets])
        return reference.values(nets, obs, action)

    q = q_of(s["critic"].params, b_["action"])
    q = q[:, *index] if kind == "discrete" else q
    wanted = {f"q_value_{i}": average(x, valid) for i, x in enumerate(q, 1)}
    errors = np.asarray(priorities, np.float64)
    wanted |= {"agent_td_error": average(errors, agent), "demo_td_error": average(errors, demo)}

    def values(actor):
        out = reference.forward(actor, obs)
        if kind == "discrete":
            p = np.exp(out) / np.exp(out).sum(-1, keepdims=True)
            entropy = -(p * np.log(p)).sum(-1)
            return (p * q_of(critic, None).min(0)).sum(-1) + 0.3 * entropy, entropy
        action, log_p = reference.tanh_gaussian(out, "exp", "exact", noise)
        return q_of(critic, action).min(0) - 0.3 * log_p, -log_p

    value, entropy = values(s["actor"].params)
    wanted |= {"entropy": average(entropy, valid)}
    wanted |= {"agent_actor_loss": -average(value, agent), "demo_actor_loss": -average(value, demo)}
    gradients = [
        reference.gradient(lambda actor, of=of: -average(values(actor)[0], of), s["actor"].params)
        for of in (agent, demo)
    ]
    one, other = (np.concatenate([g.ravel() for g in jax.tree.leaves(x)]) for x in gradients)
    cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    assert -0.99 < cosine < 0.99  # or the test would not tell it from a sign
    wanted["cos_similarity"] = cosine
    if kind == "continuous":
        mu, raw = np.split(reference.forward(s["actor"].params, obs), 2, -1)
        wanted["mu"] = average(mu.mean(-1), valid)
        wanted["sigma"] = average(np.exp(np.clip(raw, -20, 2)).mean(-1), valid)

    for name, x in wanted.items():
        np.testing.assert_allclose(metrics[name], x, 2e-3, 1e-5, err_msg=name)
    three = metrics["actor_loss"] + metrics["critic_loss"] + metrics["ent_coef_loss"]
    np.testing.assert_allclose(metrics["total_loss"], three, rtol=1e-5)  # nothing counts twice
    assert "mu" in metrics or kind == "discrete"


def test_monitors_can_be_switched_off_and_cost_nothing():
    """Compiled, the update is then as large as SAC's own, but for a few sums."""
    kind = "continuous"

    def cost(algo, hp):
        state, _, b, key, step = given(make(kind), batch_of(kind))
        wide = dataclasses.replace(algo, hidden=(64,))
        state = jax.eval_shape(wide.init, random.key(0), hp)
        compiled = jax.jit(wide.update).lower(state, hp, b, key, step).compile()
        metrics = jax.eval_shape(wide.update, state, hp, b, key, step)[1]
        return compiled.cost_analysis()["flops"], metrics.keys()

    silent = make(kind, **SILENT)
    plain, _ = cost(*base_of(kind, silent, scalars()))
    off, few = cost(silent, scalars())
    on, all_ = cost(make(kind), scalars())
    assert off < 1.03 * plain
    assert on > 1.2 * off
    assert all_ - few == {
        "agent_actor_loss",
        "demo_actor_loss",
        "cos_similarity",
        "entropy",
        "mu",
        "sigma",
    }


@kinds
def test_each_hyper_parameter_changes_what_it_should_and_nothing_else(kind):
    algo = make(kind, temperature="log", **SILENT)
    changed = reference.CHANGED | {"entropy_share": 0.2}
    idle = "entropy_share" if kind == "continuous" else "target_entropy"
    effect = reference.EFFECT | {"entropy_share": {"temperature"}, idle: set()}
    assert changed.keys() == reference.updating(SQIL.Hyper)
    given_ = midway(algo, scalars()), batch_of(kind), HYPER, changed
    assert reference.effects_of(algo, *given_) == effect


@kinds
def test_no_hyper_parameter_needs_another_program(kind):
    algo, b = make(kind, bc_steps=3, **SILENT), batch_of(kind)
    update = reference.update_of(algo)
    for changes in ({}, {"gamma": 0.5, "alpha": 0.1}, {"entropy_share": 0.2, "tau": 1.0}):
        update(*given(algo, b, **changes))
    assert update._cache_size() <= 1  # 0 if others pushed it out


# --- behaviour cloning ----------------------------------------------------------------------


@kinds
def test_at_first_the_actor_clones_the_demonstrations_alone(kind):
    first, metrics, _ = updated(kind, 2, bc_steps=3, **SILENT)
    later, _, _ = updated(kind, 3, bc_steps=3, **SILENT)
    never, _, _ = updated(kind, 3, **SILENT)
    assert reference.difference(later, never) == 0
    rest = lambda s: (s.critic, s.target)
    assert reference.difference(rest(first), rest(never)) == 0  # the critics learn all the time

    algo = make(kind)
    state, b = (reference.plain(x) for x in (midway(algo, scalars()), batch_of(kind)))
    shown = (np.arange(10) >= 5) * b["valid"]

    def loss(actor):
        out = reference.forward(actor, b["obs"])
        if kind == "discrete":
            log_p = out - np.log(np.exp(out).sum(-1, keepdims=True))
            return -reference.averaged(log_p[np.arange(10), b["action"].astype(int)], shown)
        mean, raw = np.split(out, 2, -1)
        action = np.clip(b["action"], -0.999, 0.999)
        sigma, u = np.exp(np.clip(raw, -20, 2)), np.arctanh(action)
        normal = np.exp(-0.5 * ((u - mean) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
        log_p = (np.log(normal) - np.log(1 - action**2)).sum(-1)
        return -reference.averaged(log_p, shown)

    actor, value = state["actor"].descend(loss, HYPER["actor_lr"])
    np.testing.assert_allclose(metrics["bc_loss"], value, rtol=1e-4)
    ours = jax.tree.leaves(reference.plain(first.actor))
    for a, w in zip(ours, jax.tree.leaves(actor), strict=True):
        np.testing.assert_allclose(a, w, 2e-3, 1e-4)


def test_cloning_has_the_schedule_and_the_optimiser_of_other_updates():
    b = batch_of("continuous")

    def cloned(options=None, **hypers):
        algo = make("continuous", bc_steps=3, **SILENT, **options or {})
        return reference.update_of(algo)(*given(algo, b, 2, **hypers))[0].actor.params

    slow, usual = cloned(actor_lr=0.1 * HYPER["actor_lr"]), cloned()
    ended = cloned({"lr_schedule": "linear"}, schedule_updates=2.0)  # at lr_end, 0.1
    assert reference.difference(ended, slow) < 1e-6
    decayed = cloned({"optimizer": "adamw"}, weight_decay=0.5)
    before = midway(make("continuous"), scalars()).actor.params
    for new, old, weight in zip(decayed.weights, usual.weights, before.weights, strict=True):
        np.testing.assert_allclose(old - new, HYPER["actor_lr"] * 0.5 * weight, 1e-3, 1e-6)


# --- in the loop ----------------------------------------------------------------------------


def test_discrete_imitators_explore_by_samples_of_their_policy_alone():
    algo = SQIL(reference.discrete_spec(3), hidden=(4,))
    base, hp = algo.base, algo.base_hyper(SQIL.Hyper())
    assert base.memory(random.key(0), 3) is None
    assert hp.epsilon_start == hp.epsilon_end == 0


class Poisoned(Autoreset):
    """Pays what no agent could learn from; how much is part of its state."""

    def reset(self, key, n):
        state, step = super().reset(key, n)
        return (state, jnp.zeros(n)), step

    def step(self, state, action, key):
        inside, pay = state
        inside, step = super().step(inside, action, key)
        return (inside, pay), step._replace(reward=pay)


def shown_cartpole(steps=30):
    """Two made-up episodes, of which one was cut and one ended."""
    rng = np.random.default_rng(0)
    obs = lambda: rng.uniform(-0.1, 0.1, (steps + 1, 4)).astype(np.float32)
    acted = lambda: rng.integers(0, 2, steps)
    none = np.zeros(steps, np.float32)
    episodes = [Episode(obs(), acted(), none, False), Episode(obs(), acted(), none, True)]
    return demonstrations.view(Autoreset(CartPole()).spec, episodes)


@cache
def driver_of(members):
    env = Poisoned(CartPole())
    algo = SQIL(env.spec, **SMALL)
    return DeviceDriver(Loop(algo, env, envs=2, capacity=100), range(members))


SMALL = {"hidden": (4,), "batch_size": 8, **SILENT}


@cache
def learned(pay: float = 0.0, seeds: tuple[int, ...] = (3,)):
    """The state after 60 iterations, the first 20 of which only store."""
    hps = hyper.fill(SQIL.Hyper, {"gamma": [0.9 + 0.01 * s for s in seeds]}, len(seeds))
    driver, given = driver_of(len(seeds)), (shown_cartpole(), jnp.asarray(seeds))
    x = driver.init(given[1], hps, given[0])
    pays = jnp.asarray(np.full((len(seeds), 2), pay, np.float32))
    x = eqx.tree_at(lambda x: x.world.env[1], x, pays)
    x = driver.run(x, hps, *given, 20, "random", False)
    return jax.device_get(driver.run(x, hps, *given, 40, "explore", True))


@pytest.mark.parametrize("pay", [1e9, np.nan])
def test_what_the_environment_pays_changes_nothing_from_the_first_row_on(pay):
    one, other = learned(pay), learned()
    np.testing.assert_array_equal(one.replay.rows.reward[1:60], np.float32(pay))
    assert reference.difference(one.state, other.state) == 0


def test_members_share_the_demonstrations_and_equal_their_runs_alone():
    both, alone = learned(seeds=(2, 3)), learned()
    mine = jax.tree.map(lambda x: x[1:], both.state)
    assert reference.difference(mine, alone.state) == 0


def test_demonstrations_are_not_copied_for_each_member():
    env, shown = Autoreset(CartPole()), shown_cartpole(20_000)
    loop = Loop(SQIL(env.spec, **SMALL), env, capacity=100)
    seeds, hps = jnp.arange(8), hyper.fill(SQIL.Hyper, {}, 8)
    x = jax.eval_shape(loop.init, seeds, hps, shown)
    program = DeviceDriver(loop, seeds).programs(jax.tree.structure(x), "explore", True)
    compiled = program.lower(x, hps, shown, seeds, jnp.int32(1)).compile()
    room = compiled.memory_analysis().temp_size_in_bytes
    assert room < sum(x.nbytes for x in jax.tree.leaves(shown))  # less than a single copy


@kinds
def test_masks_and_other_observations_are_seen_as_sac_sees_them(kind):
    if kind == "continuous":
        spec = Spec({"a": jax.ShapeDtypeStruct((2,), jnp.float32)}, Box((-1.0,), (1.0,), (1,)))
        algo, obs = SQIL(spec, hidden=(4,)), {"a": np.ones((3, 2), np.float32)}
    else:
        algo = SQIL(reference.discrete_spec(masked=True), hidden=(4,))
        only = np.array([[True, False, False]] * 3)
        obs = {"action_mask": only, "x": np.ones((3, 2), np.float32)}
    hp = scalars()
    explore = lambda *x: algo.act(*x, random.key(1), jnp.int32(0), "explore")[0]
    act = np.asarray(reference.quick(explore)(reference.drawn(algo, hp), hp, None, obs))
    assert (act == 0).all() if kind == "discrete" else act.shape == (3, 1)
