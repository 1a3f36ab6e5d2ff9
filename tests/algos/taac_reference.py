"""TAAC once more: NumPy, 64 bits, one row after another, gradients by finite differences.

It shares no code with the library, only the names of options and fields. Windows are lists of
rows, walked forward; the library walks them backward.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.algos.reference import Adam, averaged, follow, forward, numbered, seen, tanh_gaussian
from tests.algos.reference import plain as plain_part
from thespis.algos.taac import Extra, Memory, State, Windows
from thespis.algos.taac_networks import Actor, EncodedCritics
from thespis.core import Row
from thespis.nn.train_state import TrainState
from thespis.xla import fast_random as draws

BATCH = 6


def plain(x) -> Any:
    """The library's states and batches as NumPy arrays of 64 bits."""
    match x:
        case TrainState():
            past = x.opt_state
            return Adam(plain(x.params), plain(past.mu), plain(past.nu), float(past.count))
        case Actor():
            return {"embeddings": [plain(e) for e in x.embeddings], "body": plain(x.body)}
        case EncodedCritics():
            return {"encoder": plain(x.encoder), "critics": plain(x.critics)}
        case State() | Windows() | Row() | Extra() | Memory():
            return {name: plain(value) for name, value in vars(x).items()}
        case _:
            return plain_part(x)


def close(actual, wanted, rtol=3e-4, atol=3e-5):
    actual = plain(actual)
    assert actual.keys() == wanted.keys()
    ours, theirs = (jax.tree_util.tree_leaves_with_path(x) for x in (actual, wanted))
    assert [path for path, _ in ours] == [path for path, _ in theirs]
    for (path, a), (_, w) in zip(ours, theirs):
        np.testing.assert_allclose(a, w, rtol, atol, err_msg=jax.tree_util.keystr(path))


# --- trajectories ---------------------------------------------------------------------------


class Bound:
    """Clips to [-1, 1]; what was added the first time is added again, so gradients pass."""

    def __init__(self):
        self.shifts, self.calls = [], 0

    def again(self):
        self.calls = 0

    def __call__(self, x):
        if self.calls == len(self.shifts):
            self.shifts.append(np.clip(x, -1, 1) - x)
        self.calls += 1
        return x + self.shifts[self.calls - 1]


def pieces(algo, trajectory):
    return np.split(trajectory, {"TAAC": 1, "TAACL": 2, "TAACQ": 3}[type(algo).__name__], -1)


def advance(algo, trajectory, bound=None):
    bound = bound or Bound()
    match pieces(algo, trajectory):
        case [a]:
            parts = [a]
        case [a, v]:
            parts = [bound(a + 2 * v), v]
        case [a, v, u]:
            v = bound(v + 2 * u)
            parts = [bound(a + 2 * v), v, u]
    return np.concatenate(parts, -1)


def new(algo, x, last, bound=None):
    join = lambda *parts: np.concatenate(parts, -1)
    match pieces(algo, last):
        case [_]:
            return x
        case [a, _]:
            return join(x, (x - a) / 2) if algo.inverse_mode else advance(algo, join(a, x), bound)
        case [a, _, _]:
            if algo.inverse_mode:
                return join(x, (x - a) / 2, (x - a) / 4)
            return advance(algo, join(a, 0 * a, x), bound)


# --- what the update is made of -------------------------------------------------------------


def encode(critics, obs):
    encoder = critics["encoder"]
    return obs if encoder is None else np.maximum(forward(encoder, obs), 0)


def values(critics, obs, trajectory):
    inputs = np.concatenate([encode(critics, obs), trajectory], -1)
    return np.stack([forward(net, inputs) for net in critics["critics"]])


def act(actor, obs, last, noise):
    inputs = last
    if actor["embeddings"]:
        parts = np.split(last, len(actor["embeddings"]), -1)
        inputs = np.concatenate([forward(e, p) for e, p in zip(actor["embeddings"], parts)], -1)
    out = forward(actor["body"], np.concatenate([obs, inputs], -1))
    return tanh_gaussian(out, "exp", "exact", noise)


def signs(weights):
    return np.where(np.asarray(weights) < 0, -1.0, 1.0)


def lowest(critics, obs, trajectory, weights):
    """The pessimistic value of every dimension of the reward: [..., d]."""
    q = values(critics, obs, trajectory)
    return signs(weights) * (signs(weights) * q).min(0)


def two_way(algo, alpha, q0, q1):
    """beta: [..., 2]."""
    if algo.advantage_clip is None:
        logits = np.stack([q0, q1], -1)
    else:
        low, high = algo.advantage_clip
        advantage = q1 - q0
        advantage = advantage if low is None else np.maximum(advantage, low)
        advantage = advantage if high is None else np.minimum(advantage, high)
        logits = np.stack([0 * advantage, advantage], -1)
    logits = logits / max(alpha, 1e-10)
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def walk(kind, reward, terminated, truncated, switched, value, gamma):
    """One window of any length: the target of every row but the last, and where it rested.

    All are lists over rows; entry k of a list is what arrived at, or was decided in, row k.
    """
    targets, rests = [], []
    for t in range(len(reward) - 1):
        total, discount, k = 0.0, 1.0, t
        while True:
            k += 1
            total = total + discount * reward[k]
            discount = discount * gamma
            if terminated[k]:
                break
            last = k == len(reward) - 1
            change = kind == "one-step" or (kind == "compare-through" and switched[k])
            if truncated[k] or last or change:
                total = total + discount * value[k]
                break
        targets.append(total)
        rests.append(k)
    return targets, rests


def taac(algo, state, hp, batch, noise, fresh, updates=0):
    """One update -> state, metrics, priorities. `noise` [l, b, n], `fresh` [l, b] are all draws."""
    rows, extra = batch["rows"], batch["rows"]["extra"]
    dims = algo.spec.reward_dim or 1
    weights = np.ones(dims) if algo.reward_weights is None else np.array(algo.reward_weights)
    gamma = hp["gamma"] if algo.gammas is None else np.array(algo.gammas)
    length, size = rows["reward"].shape[:2]
    obs = seen(state, rows["obs"])
    log_alpha = state["temperature"].params
    alpha_switch, alpha_action = np.exp(log_alpha)
    final = np.maximum(rows["terminated"], rows["truncated"]) > 0
    begins = (extra["repeats"] == 0) & (algo.first == "new")
    going = ~final & (batch["valid"] > 0)
    choosing = going & ~begins
    critics = state["critic"].params
    encoded = encode(critics, obs)

    bound = Bound()
    tau0 = advance(algo, extra["last"])
    proposal, log_p = act(state["actor"].params, encoded, extra["last"], noise)
    tau1 = new(algo, proposal, extra["last"], bound)
    q0, q1 = (lowest(critics, obs, tau, weights) @ weights for tau in (tau0, tau1))
    beta = two_way(algo, alpha_switch, q0, q1)

    def actor_loss(actor):
        bound.again()
        proposal, log_p = act(actor, encoded, extra["last"], noise)
        q1 = lowest(critics, obs, new(algo, proposal, extra["last"], bound), weights) @ weights
        taken = np.where(begins, 1.0, beta[..., 1])
        return (alpha_action * log_p - taken * q1)[going].mean()

    actor, pi_loss = state["actor"].descend(actor_loss, hp["actor_lr"])

    v0, v1 = (lowest(state["target"], obs, tau, weights) for tau in (tau0, tau1))
    value = beta[..., :1] * v0 + beta[..., 1:] * v1
    reward = rows["reward"].reshape(length, size, dims)
    if algo.normalize_rewards:
        mean, var = state["reward_stats"]
        reward = np.clip((reward - mean) / np.sqrt(var), -hp["reward_clip"], hp["reward_clip"])
    reward = hp["reward_scale"] * reward
    dead = rows["terminated"] * (not algo.ignore_done)
    cut = np.maximum(rows["truncated"], rows["terminated"] - dead)  # bootstraps all the same
    target = np.zeros((length - 1, size, len(weights)))
    kept = going[:-1].copy()
    for i in range(size):
        switched = (extra["switch"][:, i] > 0) | fresh[:, i]
        args = (reward[:, i], dead[:, i], cut[:, i], switched, value[:, i], gamma)
        target[:, i], rests = walk(algo.returns, *args)
        if algo.drop_truncated:
            kept[:, i] &= rows["truncated"][rests, i] == 0

    def errors(critics):
        return values(critics, obs[:-1], extra["trajectory"][:-1]) - target

    def per_critic(critics):
        error, delta = errors(critics), hp["huber_delta"]
        lost = error**2
        if algo.td_loss == "huber":
            near, far = error**2 / 2, delta * np.abs(error) - delta**2 / 2
            lost = np.where(np.abs(error) < delta, near, far)
        return (batch["weight"] * lost.mean(-1))[:, kept].mean(-1)

    critic, q_loss = state["critic"].descend(lambda c: per_critic(c).sum(), hp["critic_lr"])

    n = algo.spec.action.size
    wanted = np.array([hp["target_switch_entropy"], hp["target_entropy"] * n])
    if algo.min_prob:
        p, share = algo.min_prob[0], algo.min_prob[-1]
        wanted = np.array([-p * np.log(p) - (1 - p) * np.log(1 - p), n * np.log(2 * share)])
    switch_entropy = -(beta * np.log(beta)).sum(-1)[choosing].mean()
    entropies = np.array([switch_entropy, -log_p[going].mean()])
    temperature, alpha_loss = state["temperature"].descend(
        lambda x: (x * (entropies - wanted)).sum(), hp["alpha_lr"]
    )

    due = (updates + 1) % algo.target_period == 0
    error = errors(critics)
    size_of_error = np.abs(error).mean((0, -1))
    residual, goal = error.mean(0)[kept], target[kept]
    ended = choosing & (extra["switch"] > 0)
    metrics = {
        "actor_loss": pi_loss,
        "critic_loss": q_loss,
        **numbered("critic_loss", per_critic(critics)),
        "ent_coef": alpha_action,
        "switch_ent_coef": alpha_switch,
        "ent_coef_loss": alpha_loss,
        "total_loss": pi_loss + q_loss + alpha_loss,
        "log_prob": log_p[going].mean(),
        "switch_entropy": switch_entropy,
        "switch_probability": beta[choosing][:, 1].mean(),
        "resample_advantage": (q1 - q0)[choosing].mean(),
        "td_error": size_of_error[kept].mean(),
        "target_value": value[1:][kept].mean(),
        "return": goal.mean(),
        "explained_variance": (1 - residual.var(0) / goal.var(0)).mean(),
        "switch_probabilities": np.histogram(beta[choosing][:, 1], np.linspace(0, 1, 21))[0],
        "repeat_rate": 1 - ended.sum() / choosing.sum(),
        "run_length": (extra["repeats"] * ended).sum() / ended.sum() if ended.any() else None,
    }
    for d in range(dims):
        end = "" if algo.spec.reward_dim is None else f"/{d}"
        goal = target[kept][:, d]
        metrics |= {f"return{end}": goal.mean()} if end else {}
        for i, one in enumerate(error[..., d], 1):
            metrics[f"q_value_{i}{end}"] = (goal + one[kept]).mean()
            metrics[f"td_error_{i}{end}"] = np.abs(one[kept]).mean()
            metrics[f"explained_variance_{i}{end}"] = 1 - one[kept].var() / goal.var()
    new_state = {
        "actor": actor,
        "critic": critic,
        "target": follow(state["target"], critic.params, hp["tau"]) if due else state["target"],
        "temperature": temperature,
        "stats": state["stats"],
        "reward_stats": state["reward_stats"],
    }
    priorities = [
        averaged(size_of_error[:, i], kept[:, i]) if kept[:, i].any() else 0.0 for i in range(size)
    ]
    return new_state, metrics, np.array(priorities)


# --- things to test on ----------------------------------------------------------------------


def windows(algo, seed: int = 0, batch: int = BATCH, obs: int | None = None) -> Windows:
    """Windows with every mixture of ends and switches; each row's past is that of a real one."""
    rng = np.random.default_rng(seed)
    length, n = algo.n_step + 1, algo.spec.action.size
    ends = rng.choice(4, (length, batch), p=[0.6, 0.15, 0.15, 0.1])
    terminated, truncated = ends == 1, ends == 2
    final = terminated | truncated
    repeats = rng.integers(1, 5, (length, batch))
    repeats[1:][final[:-1]] = 0
    repeats[0, :2] = 0
    switch = rng.random((length, batch)) < 0.3
    floats = lambda *shape: rng.uniform(-1, 1, (length, batch, *shape)).astype(np.float32)
    trajectory = floats(algo.parts * n)
    valid = np.ones(batch, np.float32)
    valid[-1] = 0
    rewards = () if algo.spec.reward_dim is None else (algo.spec.reward_dim,)
    odd = (1 - valid).reshape(1, batch, *(1 for _ in rewards))
    return Windows(
        rows=Row(
            obs=jnp.asarray(2 * floats(obs or algo.spec.obs.shape[0])),
            # What stands in an invalid entry must not matter, so it stands out.
            reward=jnp.asarray(3 * floats(*rewards) + 50 * odd),
            terminated=jnp.asarray(terminated),
            truncated=jnp.asarray(truncated),
            action=jnp.asarray(trajectory[..., :n]),
            extra=Extra(
                last=jnp.asarray(floats(algo.parts * n)),
                trajectory=jnp.asarray(trajectory),
                repeats=jnp.asarray(repeats, jnp.int32),
                switch=jnp.asarray(switch),
            ),
        ),
        weight=jnp.asarray(rng.uniform(0.2, 1, batch), jnp.float32),
        valid=jnp.asarray(valid),
    )


def fixed_draws(monkeypatch, algo, batch: int = BATCH) -> tuple[np.ndarray, np.ndarray]:
    """Every normal draw and every fresh switch of a batch, whatever the keys."""
    rng = np.random.default_rng(5)
    length, n = algo.n_step + 1, algo.spec.action.size
    noise = rng.normal(size=(length, batch, n)).astype(np.float32)
    fresh = rng.random((length, batch)) < 0.25
    normal = lambda key, shape: jnp.asarray(noise).reshape(shape)
    # Numbers below every chance, or above it.
    number = jnp.where(jnp.asarray(fresh), -1.0, 2.0)
    usual = draws.uniform  # networks are drawn from other ranges

    def uniform(key, shape, low=0.0, high=1.0):
        whole = (low, high) == (0.0, 1.0)
        return number[-shape[0] :].reshape(shape) if whole else usual(key, shape, low, high)

    monkeypatch.setattr("thespis.xla.fast_random.normal", normal)
    monkeypatch.setattr("thespis.xla.fast_random.uniform", uniform)
    return noise.astype(np.float64), fresh
