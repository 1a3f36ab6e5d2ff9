"""The algorithms once more: NumPy, 64 bits, gradients by finite differences, own Adam.

It shares no code with the library, only the names of options and fields. Networks are lists of
(weight [in, out], bias), everything that Adam moves is an `Adam`, a state is a dict of these.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from optax import ScaleByAdamState

from thespis.algos.actor_critic import ActorCritic
from thespis.core import Box, Discrete, Spec, Transition
from thespis.nn.networks import MLP, Critics
from thespis.nn.normalization import Running
from thespis.nn.train_state import TrainState
from thespis.tuning.hyper import declared

BATCH = 10


class Adam(NamedTuple):
    params: Any
    first: Any
    second: Any
    count: float

    def descend(self, loss, rate) -> tuple[Adam, float]:
        grad = gradient(loss, self.params)
        count = self.count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, self.first, grad)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, self.second, grad)

        def step(p, m, v):
            m, v = m / (1 - 0.9**count), v / (1 - 0.999**count)
            return p - rate * m / (np.sqrt(v) + 1e-8)

        return Adam(jax.tree.map(step, self.params, first, second), first, second, count), loss(
            self.params
        )


def numbered(name, values):
    return {f"{name}_{i + 1}": x for i, x in enumerate(values)}


def gradient(loss, params, h=1e-6):
    """Central differences."""
    params = jax.tree.map(np.array, params)
    leaves, structure = jax.tree.flatten(params)
    out = [np.zeros_like(x) for x in leaves]
    for x, g in zip(leaves, out):
        for i in np.ndindex(x.shape):
            here = x[i]
            x[i] = here + h
            above = loss(params)
            x[i] = here - h
            below = loss(params)
            x[i] = here
            g[i] = (above - below) / (2 * h)
    return jax.tree.unflatten(structure, out)


# --- from the library to NumPy --------------------------------------------------------------


def plain(x) -> Any:
    """The library's states and batches as NumPy arrays of 64 bits."""
    match x:
        case None:
            return None
        case TrainState():
            past = x.opt_state
            return Adam(plain(x.params), plain(past.mu), plain(past.nu), float(past.count))
        case MLP():
            return [(plain(w), plain(b)) for w, b in zip(x.weights, x.biases)]
        case Critics():
            return [plain(network) for network in x.networks]
        case Running():
            return plain(x.mean), plain(x.var)
        case eqx.Module():
            return {name: plain(value) for name, value in vars(x).items()}
        case dict():
            return {name: plain(value) for name, value in x.items()}
        case tuple():
            return [plain(value) for value in x]
        case _:
            return np.array(x, np.float64)


def close(actual, wanted, rtol=2e-4, atol=2e-5):
    """Two trees of numbers are equal, or the failure names the leaf."""
    actual, wanted = plain(actual), dict(wanted)
    assert actual.keys() == wanted.keys()
    for name in wanted:
        ours, theirs = (jax.tree_util.tree_leaves_with_path(x[name]) for x in (actual, wanted))
        assert [path for path, _ in ours] == [path for path, _ in theirs]
        for (path, a), (_, w) in zip(ours, theirs):
            where = name + jax.tree_util.keystr(path)
            np.testing.assert_allclose(a, w, rtol, atol, err_msg=where)


# --- forward --------------------------------------------------------------------------------


def forward(net, x):
    for weight, bias in net[:-1]:
        x = np.maximum(x @ weight + bias, 0)
    return x @ net[-1][0] + net[-1][1]


def values(critics, obs, action):
    return np.stack([forward(net, np.concatenate([obs, action], -1))[:, 0] for net in critics])


def softplus(x):
    return np.logaddexp(0, x)


def tanh_gaussian(out, std, log_derivative, noise):
    """A network's output -> action and log-probability."""
    mean, raw = np.split(out, 2, -1)
    sigma = np.exp(np.clip(raw, -20, 2)) if std == "exp" else softplus(raw) + 0.001
    u = mean + sigma * noise
    action = np.tanh(u)
    normal = np.exp(-0.5 * ((u - mean) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
    if log_derivative == "exact":
        derivative = -2 * np.log(np.cosh(u))
    else:
        derivative = np.log(1 - action**2 + 1e-6)
    return action, (np.log(normal) - derivative).sum(-1)


def seen(state, obs):
    return vector(state["stats"], obs)


def vector(stats, obs):
    """One vector of an observation, the parts of a dict in the order of their names."""
    if isinstance(obs, dict):
        parts = dict.fromkeys(obs) if stats is None else stats
        return np.concatenate([vector(parts[name], obs[name]) for name in sorted(obs)], -1)
    if stats is None:
        return obs
    mean, var = stats
    return np.clip((obs - mean) / np.sqrt(np.clip(var, 1e-6, 1e6)), -5, 5)


def averaged(x, kept):
    """The mean over the kept entries of the batch."""
    return x[..., kept.astype(bool)].mean(-1)


def follow(target, online, tau):
    return jax.tree.map(lambda t, o: (1 - tau) * t + tau * o, target, online)


# --- the algorithms -------------------------------------------------------------------------


def bellman(algo, hp, b, next_value):
    alive = 1 if algo.ignore_done else 1 - b["terminated"]
    return hp["reward_scale"] * b["reward"] + hp["gamma"] ** b["steps"] * alive * next_value


def kept(algo, b):
    """Which entries train the critics."""
    return b["valid"] * (1 - b["truncated"]) if algo.drop_truncated else b["valid"]


def sac(algo, state, hp, b, noise):
    """One update -> state, metrics, priorities; `noise` [batch, n] is every normal draw."""
    obs, next_obs = seen(state, b["obs"]), seen(state, b["next_obs"])
    x = None if state["temperature"] is None else state["temperature"].params
    if algo.temperature == "fixed":
        alpha = hp["alpha"]
    else:
        alpha = x if algo.temperature == "linear" else np.exp(x)

    def act(actor, obs):
        return tanh_gaussian(forward(actor, obs), algo.std, algo.log_derivative, noise)

    action, log_p = act(state["actor"].params, next_obs)
    next_value = values(state["target"], next_obs, action).min(0) - alpha * log_p
    target = bellman(algo, hp, b, next_value)

    def per_critic(critics):
        squares = (values(critics, obs, b["action"]) - target) ** 2
        return averaged(b["weight"] * squares, kept(algo, b))

    def critic_loss(critics):
        each = per_critic(critics)
        return each.sum() if algo.critic_loss == "sum" else 0.5 * each.mean()

    critic, q_loss = state["critic"].descend(critic_loss, hp["critic_lr"])
    critic_for_actor = (critic if algo.order == "sequential" else state["critic"]).params

    def actor_loss(actor):
        action, log_p = act(actor, obs)
        return averaged(alpha * log_p - values(critic_for_actor, obs, action).min(0), b["valid"])

    actor, pi_loss = state["actor"].descend(actor_loss, hp["actor_lr"])
    log_p = averaged(act(state["actor"].params, obs)[1], b["valid"])
    wanted = hp["target_entropy"] * algo.spec.action.size

    def temperature_loss(x):
        return (np.exp(x) if algo.temperature == "exp" else x) * (-log_p - wanted)

    temperature, x_loss = None, 0.0
    if algo.temperature != "fixed":
        temperature, x_loss = state["temperature"].descend(temperature_loss, hp["alpha_lr"])
    if algo.temperature == "linear":
        temperature = temperature._replace(params=np.maximum(temperature.params, 0))

    error = np.abs(values(state["critic"].params, obs, b["action"]) - target).mean(0)
    metrics = {
        "actor_loss": pi_loss,
        "critic_loss": q_loss,
        **numbered("critic_loss", per_critic(state["critic"].params)),
        "ent_coef": alpha,
        "ent_coef_loss": x_loss,
        "total_loss": pi_loss + q_loss + x_loss,
        "td_error": averaged(error, kept(algo, b)),
        "target_value": averaged(next_value, kept(algo, b)),
        "log_prob": log_p,
        "obs_mean": obs.mean(),
        "obs_std": obs.std(),
    }
    new = {
        "actor": actor,
        "critic": critic,
        "target": follow(state["target"], critic.params, hp["tau"]),
        "temperature": temperature,
        "stats": state["stats"],
        "reward_stats": state["reward_stats"],
    }
    return new, metrics, error


def td3(algo, state, hp, b, noise, updates):
    """One update, `updates` were done before -> state, metrics, priorities."""
    obs, next_obs = seen(state, b["obs"]), seen(state, b["next_obs"])
    smooth = np.clip(hp["target_noise"] * noise, -hp["noise_clip"], hp["noise_clip"])
    action = np.clip(np.tanh(forward(state["target_actor"], next_obs)) + smooth, -1, 1)
    next_value = values(state["target_critic"], next_obs, action).min(0)
    target = bellman(algo, hp, b, next_value)

    def per_critic(critics):
        squares = (values(critics, obs, b["action"]) - target) ** 2
        return averaged(b["weight"] * squares, kept(algo, b))

    critic, q_loss = state["critic"].descend(lambda c: per_critic(c).sum(), hp["critic_lr"])
    critic_for_actor = (critic if algo.order == "sequential" else state["critic"]).params

    def actor_loss(actor):
        q = values(critic_for_actor[:1], obs, np.tanh(forward(actor, obs)))[0]
        return -averaged(q, b["valid"])

    new = state | {"critic": critic}
    due = (updates + 1) % algo.delay == 0
    pi_loss = None
    if due:
        new["actor"], pi_loss = state["actor"].descend(actor_loss, hp["actor_lr"])
        new["target_actor"] = follow(state["target_actor"], new["actor"].params, hp["tau"])
    if due or algo.critic_target == "every":
        new["target_critic"] = follow(state["target_critic"], critic.params, hp["tau"])

    error = np.abs(values(state["critic"].params, obs, b["action"]) - target).mean(0)
    metrics = {
        "actor_loss": pi_loss,
        "critic_loss": q_loss,
        **numbered("critic_loss", per_critic(state["critic"].params)),
        "td_error": averaged(error, kept(algo, b)),
        "target_value": averaged(next_value, kept(algo, b)),
    }
    return new, metrics, error


def chances(logits, legal):
    """Probabilities of the legal actions, row by row; none at all where nothing is legal."""
    p = np.zeros_like(logits)
    for row, some, out in zip(logits, legal, p):
        if some.any():
            e = np.exp(row[some] - row[some].max())
            out[some] = e / e.sum()
    return p


def entropies(p):
    return -(p * np.log(np.where(p > 0, p, 1))).sum(-1)


def discrete_sac(algo, state, hp, b):
    """One update -> state, metrics, priorities."""
    obs, next_obs = seen(state, b["obs"]), seen(state, b["next_obs"])
    everything = np.ones((len(obs), algo.spec.action.n), bool)
    mask = lambda x: x["action_mask"] > 0 if isinstance(x, dict) else everything
    legal, next_legal = mask(b["obs"]), mask(b["next_obs"])
    reduce = {"min": np.min, "mean": np.mean}[algo.reduce]
    x = None if state["temperature"] is None else state["temperature"].params
    if algo.temperature == "fixed":
        alpha = hp["alpha"]
    else:
        alpha = x if algo.temperature == "linear" else np.exp(x)

    def all_values(critics, obs):
        return np.stack([forward(net, obs) for net in critics])

    def taken(critics):
        action = b["action"].astype(int)
        return all_values(critics, obs)[:, np.arange(len(obs)), action]

    p = chances(forward(state["actor"].params, next_obs), next_legal)
    next_q = all_values(state["target"], next_obs)
    next_value = (p * reduce(next_q, 0)).sum(-1)
    if algo.critic_entropy:
        next_value = next_value + alpha * entropies(p)
    target = bellman(algo, hp, b, next_value)
    old = taken(state["target"])

    def per_critic(critics):
        q = taken(critics)
        squares = (q - target) ** 2
        if algo.clip_q:
            near = np.clip(q, old - hp["q_clip"], old + hp["q_clip"])
            squares = np.maximum(squares, (near - target) ** 2)
        return averaged(b["weight"] * squares, kept(algo, b))

    critic, q_loss = state["critic"].descend(lambda c: per_critic(c).sum(), hp["critic_lr"])
    q_now = reduce(all_values(critic.params, obs), 0)

    def actor_loss(actor):
        p = chances(forward(actor, obs), legal)
        return averaged(-(p * q_now).sum(-1) - alpha * entropies(p), b["valid"])

    actor, pi_loss = state["actor"].descend(actor_loss, hp["actor_lr"])
    entropy = averaged(entropies(chances(forward(state["actor"].params, obs), legal)), b["valid"])
    count = legal.sum(-1)
    scale = count if algo.entropy_unit == "actions" else np.log(np.maximum(count, 1))
    wanted = averaged(hp["target_entropy"] * scale, b["valid"])

    def temperature_loss(x):
        return (np.exp(x) if algo.temperature == "exp" else x) * (entropy - wanted)

    temperature, x_loss = None, 0.0
    if algo.temperature != "fixed":
        temperature, x_loss = state["temperature"].descend(temperature_loss, hp["alpha_lr"])
    if algo.temperature == "linear":
        temperature = temperature._replace(params=np.maximum(temperature.params, 0))

    error = np.abs(taken(state["critic"].params) - target).mean(0)
    metrics = {
        "actor_loss": pi_loss,
        "critic_loss": q_loss,
        **numbered("critic_loss", per_critic(state["critic"].params)),
        "ent_coef": alpha,
        "ent_coef_loss": x_loss,
        "total_loss": pi_loss + q_loss + x_loss,
        "td_error": averaged(error, kept(algo, b)),
        "target_value": averaged(next_value, kept(algo, b)),
        "entropy": entropy,
        "target_entropy": wanted,
    }
    per_state = (next_q * next_legal).sum(-1) / np.maximum(next_legal.sum(-1), 1)
    for i, q in enumerate(per_state, 1):
        metrics[f"q_value_{i}"] = averaged(q, kept(algo, b))
    if algo.store_logits:
        then = chances(b["extra"]["logits"], legal)
        metrics["behaviour_entropy"] = averaged(entropies(then), b["valid"])
    new = {
        "actor": actor,
        "critic": critic,
        "target": follow(state["target"], critic.params, hp["tau"]),
        "temperature": temperature,
        "stats": state["stats"],
        "reward_stats": state["reward_stats"],
    }
    return new, metrics, error


# --- things to test on ----------------------------------------------------------------------


def spec(obs: int = 2, action: int = 2, descriptor: str | None = None) -> Spec:
    bounds = Box((-1.0,) * action, (1.0,) * action, (action,))
    return Spec(jax.ShapeDtypeStruct((obs,), jnp.float32), bounds, descriptor=descriptor)


def transitions(action: int = 2, seed: int = 0) -> Transition:
    """One of each kind: middle, terminal, truncated, both kinds over several steps, invalid."""
    rng = np.random.default_rng(seed)
    flags = lambda *at: jnp.asarray(np.isin(np.arange(BATCH), at), jnp.float32)
    floats = lambda x: jnp.asarray(x, jnp.float32)
    invalid = flags(6, 9)
    return Transition(
        obs=floats(rng.normal(size=(BATCH, 2))),
        action=floats(rng.uniform(-1, 1, (BATCH, action))),
        # What stands in an invalid entry must not matter, so it stands out.
        reward=floats(rng.normal(size=BATCH)) + 30 * invalid,
        next_obs=floats(rng.normal(size=(BATCH, 2))),
        terminated=flags(1, 4, 9),
        truncated=flags(2, 5),
        steps=floats([1, 1, 1, 3, 3, 2, 1, 2, 1, 1]),
        valid=1 - invalid,
        weight=floats(rng.uniform(0.2, 1, BATCH)),
    )


def discrete_spec(n: int = 3, masked: bool = False, obs: int = 2) -> Spec:
    vector = jax.ShapeDtypeStruct((obs,), jnp.float32)
    mask = jax.ShapeDtypeStruct((n,), bool)
    return Spec({"action_mask": mask, "x": vector} if masked else vector, Discrete(n))


def choices(n: int = 3, masked: bool = False, seed: int = 0) -> Transition:
    """The same transitions with one of n actions, and its logits. Masks are of every kind.

    With masks, a state has one legal action, and there are a terminal and a truncated successor
    (entries 1 and 2) without any.
    """
    rng, batch = np.random.default_rng(seed), transitions(1, seed)
    legal, next_legal = (rng.random((BATCH, n)) < 0.6 for _ in range(2))
    for mask in (legal, next_legal):
        mask[np.arange(BATCH), rng.integers(0, n, BATCH)] = True
    legal[3] = np.arange(n) == n - 1
    next_legal[1:3] = False
    action = [rng.choice(np.flatnonzero(row)) for row in (legal if masked else legal | True)]
    seen = lambda x, mask: {"action_mask": jnp.asarray(mask), "x": x} if masked else x
    return dataclasses.replace(
        batch,
        obs=seen(batch.obs, legal),
        next_obs=seen(batch.next_obs, next_legal),
        action=jnp.asarray(action, jnp.int32),
        extra={"logits": jnp.asarray(rng.normal(size=(BATCH, n)), jnp.float32)},
    )


def team_spec(
    sizes=(2, 2), discrete=False, masked=False, rewards=False, flags=False, state=False
) -> Spec:
    """Of several agents that observe two numbers each; discrete ones have one action more."""
    agents, n = len(sizes), max(sizes) + 1
    struct = lambda *shape, dtype=jnp.float32: jax.ShapeDtypeStruct(shape, dtype)
    own = struct(agents, 2)
    obs = {"agents": {"action_mask": struct(agents, n, dtype=bool), "x": own} if masked else own}
    if flags:
        obs |= dict.fromkeys(("alive", "ended"), struct(agents, dtype=bool))
    if state:
        obs |= {"state": struct(3)}
    kinds = [Discrete(k + 1) if discrete else Box((-1.0,) * k, (1.0,) * k, (k,)) for k in sizes]
    names = tuple("abcdefgh"[:agents])
    return Spec(obs, tuple(kinds), agents if rewards else None, agents=names)


def observations(it: Spec, n: int, seed: int = 0):
    """Random ones; every agent acts and has a legal action."""
    rng = np.random.default_rng(seed)

    def leaf(path, s):
        if s.dtype != bool:
            return jnp.asarray(rng.normal(size=(n, *s.shape)), s.dtype)
        mask = rng.random((n, *s.shape)) < 0.6
        mask[..., 0] = True
        known = {"alive": np.ones_like(mask), "ended": np.zeros_like(mask)}
        return jnp.asarray(known.get(jax.tree_util.keystr(path, simple=True), mask))

    return jax.tree_util.tree_map_with_path(leaf, it.obs)


# Of SAC and its kin. Every number is its own, so that none can stand in for another.
HYPER = {
    "actor_lr": 0.03,
    "critic_lr": 0.05,
    "alpha_lr": 0.02,
    "gamma": 0.9,
    "tau": 0.1,
    "reward_scale": 1.7,
    "alpha": 0.3,
    "target_entropy": -0.6,
}

# Great steps, so that remote effects show; another number of each; and what that changes.
BOLD = {"actor_lr": 0.5, "critic_lr": 0.5, "tau": 0.5}
CHANGED = {
    "actor_lr": 0.1,
    "critic_lr": 0.1,
    "alpha_lr": 0.05,
    "gamma": 0.5,
    "tau": 0.2,
    "reward_scale": 0.6,
    "alpha": 0.9,
    "target_entropy": -0.1,
}
EFFECT = {
    "actor_lr": {"actor"},
    "critic_lr": {"critic", "target", "actor"},
    "alpha_lr": {"temperature"},
    "gamma": {"critic", "target", "actor"},
    "tau": {"target"},
    "reward_scale": {"critic", "target", "actor"},
    "alpha": {"initial temperature"},  # if fixed, the NumPy form covers it
    "target_entropy": {"temperature"},
}


def scalars(Hyper, values: dict[str, float]):
    """Hyper-parameters of one member."""
    return Hyper(**{name: jnp.float32(x) for name, x in values.items()})


# Tests run a program once or twice, so compiling it is what they pay for.
HASTE = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


def quick(function):
    """Compiled as one program, and in haste."""
    return jax.jit(function, compiler_options=HASTE)


@cache
def update_of(algo):
    """Its update, compiled once for all tests of a file; not for those that patch something."""
    return quick(algo.update)


def drawn(algo, hp, seed: int = 0):
    """A state of the shape that `init` gives, with numbers of NumPy's: nothing is compiled."""
    rng = np.random.default_rng(seed)
    floats = lambda low, high, shape: jnp.asarray(rng.uniform(low, high, shape), jnp.float32)

    def fill(x):
        match x:
            case TrainState():
                return aged(learned(jax.tree.map(fill, x.params)), seed + 1)
            case Running():
                numbers = floats(-1, 1, x.mean.shape), floats(0.5, 2, x.var.shape)
                count = jnp.asarray(np.full(x.count.shape, 40, np.int32))
                return jax.tree.unflatten(jax.tree.structure(x), [*numbers, count])
            case _ if jnp.issubdtype(x.dtype, jnp.floating):
                reach = x.shape[-2] ** -0.5 if len(x.shape) > 1 else 0.5
                return floats(-reach, reach, x.shape)
            case _:
                return jnp.asarray(np.zeros(x.shape, x.dtype))

    whole = lambda x: isinstance(x, TrainState | Running)
    return jax.tree.map(fill, jax.eval_shape(algo.init, random.key(0), hp), is_leaf=whole)


def midway(algo, hp, alpha=0.2):
    """A state of SAC as found in training: moments, a target and a temperature of their own."""
    state = drawn(algo, hp)
    if state.temperature is None:
        return state
    x = np.float32(alpha if algo.temperature == "linear" else np.log(alpha))
    return dataclasses.replace(state, temperature=aged(learned(x), 3))


def learned(params) -> TrainState:
    """Before any update."""
    params = jax.tree.map(jnp.asarray, params)
    zeros = jax.tree.map(lambda x: jnp.asarray(np.zeros_like(x)), params)
    return TrainState(params, ScaleByAdamState(jnp.int32(0), zeros, zeros))


def aged(learned: TrainState, seed: int) -> TrainState:
    """As after some updates: fresh moments would hide the gradient's size, all but its sign."""
    rng = np.random.default_rng(seed)
    draw = lambda x, low, high: jnp.asarray(rng.uniform(low, high, x.shape), jnp.float32)
    first = jax.tree.map(lambda x: draw(x, -0.1, 0.1), learned.opt_state.mu)
    second = jax.tree.map(lambda x: draw(x, 1e-4, 1e-3), learned.opt_state.nu)
    return TrainState(learned.params, ScaleByAdamState(jnp.int32(3), first, second))


def fixed_noise(monkeypatch, action: int = 2) -> np.ndarray:
    """Every normal draw of a batch becomes this one, however keys are split."""
    noise = np.random.default_rng(5).normal(size=(BATCH, action)).astype(np.float32)
    draw = lambda key, shape=(), dtype=jnp.float32: jnp.broadcast_to(jnp.asarray(noise), shape)
    monkeypatch.setattr("thespis.xla.fast_random.normal", draw)
    return noise.astype(np.float64)


def members(Hyper, values: dict[str, float], changed: dict[str, float]):
    """Hyper-parameters [1 + changed]: `values`, and then each with one of `changed` instead."""
    values = {name: d.default for name, d in declared(Hyper).items()} | values
    sets = [values, *(values | {name: x} for name, x in changed.items())]
    return Hyper(**{name: jnp.asarray([s[name] for s in sets], jnp.float32) for name in values})


def updating(Hyper) -> set[str]:
    """The hyper-parameters of acting and updating: those of drawing batches are no part of it."""
    return declared(Hyper).keys() - declared(ActorCritic.Hyper).keys()


def difference(a, b) -> float:
    """The greatest difference of two trees of numbers."""
    both = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(np.abs(np.float64(x) - np.float64(y)).max() for x, y in both)


def member(tree, i: int):
    """The i-th member of a population, as NumPy arrays."""
    return jax.tree.map(lambda x: np.asarray(x)[i], tree)


def named(options: dict[str, Any]) -> str:
    """What pytest calls a test of these options."""
    return "-".join(f"{name}={value}" for name, value in options.items()) or "defaults"


def thorough(cases: list) -> list:
    """Cases for `make test-thorough` alone."""
    return [pytest.param(case, marks=pytest.mark.thorough) for case in cases]


def effects(parts: dict[str, Any], changed) -> dict[str, set[str]]:
    """Which parts of a population, made by `members`, each change made differ."""
    differs = lambda x, i: difference(member(x, 0), member(x, i)) > 2e-6
    return {
        name: {part for part, x in parts.items() if differs(x, i)}
        for i, name in enumerate(changed, 1)
    }


def effects_of(algo, state, batch, values, changed) -> dict[str, set[str]]:
    """Which parts of a first state and of one that was updated each change makes differ."""

    @quick
    @jax.vmap
    def parts(hp):
        first, new = (
            algo.init(random.key(0), hp),
            algo.update(state, hp, batch, random.key(2), jnp.int32(0)),
        )
        return {f"initial {name}": x for name, x in vars(first).items()} | vars(new[0])

    found = parts(members(algo.Hyper, values | BOLD, changed))
    return effects({name: x for name, x in found.items() if x is not None}, changed)
