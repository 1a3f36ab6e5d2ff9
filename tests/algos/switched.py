"""SAC and TD3 with all their switches once more: NumPy, 64 bits, gradients by finite differences.

Like reference.py it shares no code with the library. A network is a dict of weights, biases and
norms, and its choices (`Network`) are read from the algorithm.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import jax
import numpy as np

from tests.algos.reference import (
    Adam,
    averaged,
    follow,
    gradient,
    kept,
    numbered,
    plain,
    seen,
    tanh_gaussian,
)
from thespis.nn.networks import MLP, Critics
from thespis.nn.normalization import Running
from thespis.nn.norms import BatchNorm, LayerNorm
from thespis.nn.train_state import TrainState


def numpy(x) -> Any:
    """The library's states as dicts of NumPy arrays of 64 bits."""
    match x:
        case TrainState():
            past = x.opt_state if hasattr(x.opt_state, "mu") else x.opt_state[-1]
            return Adam(numpy(x.params), numpy(past.mu), numpy(past.nu), float(past.count))
        case Critics():
            return [numpy(network) for network in x.networks]
        case Running():
            return plain(x)
        case MLP():
            named = ("weights", "biases", "norms", "input_norm", "final_norm")
            return {name: numpy(getattr(x, name)) for name in named}
        case BatchNorm():
            return {n: plain(getattr(x, n)) for n in ("scale", "shift", "mean", "var", "updates")}
        case LayerNorm():
            return {name: plain(getattr(x, name)) for name in ("scale", "shift")}
        case list():
            return [numpy(value) for value in x]
        case _ if hasattr(x, "__dataclass_fields__"):
            return {name: numpy(value) for name, value in vars(x).items()}
        case _:
            return plain(x)


# --- networks -------------------------------------------------------------------------------


def activate(kind, x):
    return {
        "relu": lambda: np.maximum(x, 0),
        "elu": lambda: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1),
        "silu": lambda: x / (1 + np.exp(-x)),
        "tanh": lambda: np.tanh(x),
    }[kind]()


def normalise(norm, x, how, valid=None):
    """-> the normalised rows, and the norm with new running statistics."""
    if "mean" not in norm:
        if norm["shift"] is None:
            return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * norm["scale"], norm
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * norm["scale"] + norm["shift"], norm
    if valid is None:
        x = (x - norm["mean"]) / np.sqrt(norm["var"] + how.epsilon)
        return x * norm["scale"] + norm["shift"], norm
    rows = x[valid > 0]
    mean, var = rows.mean(0), rows.var(0)
    std, running = np.sqrt(var + how.epsilon), np.sqrt(norm["var"] + how.epsilon)
    out = (x - mean) / std
    if how.renorm is not None and norm["updates"] >= how.renorm:
        factor = np.clip(std / running, 1 / 3, 3)
        shift = np.clip((mean - norm["mean"]) / running, -5, 5)
        factor, shift = CORRECTIONS.constant(factor, shift)
        out = out * factor + shift
    m = how.momentum
    later = {"mean": m * norm["mean"] + (1 - m) * mean, "var": m * norm["var"] + (1 - m) * var}
    return out * norm["scale"] + norm["shift"], norm | later | {"updates": norm["updates"] + 1}


class Corrections:
    """Batch renormalisation's, which bear no gradient: as at the first call of a loss."""

    kept: list | None = None
    left: list | None = None

    def constant(self, *numbers):
        if self.left is not None:
            return self.left.pop(0)
        if self.kept is not None:
            self.kept.append(numbers)
        return numbers

    def frozen(self, loss, params):
        """The loss with all corrections as they are at these parameters."""
        self.kept = []
        loss(params)
        kept, self.kept = self.kept, None

        def again(params):
            self.left = list(kept)
            found, self.left = loss(params), None
            return found

        return again


CORRECTIONS = Corrections()


def forward(net, x, how, valid=None, masks=None):
    """-> output, the network with new running statistics."""
    norms, later, new = iter(net["norms"] or []), [], dict(net)

    def normed(x):
        if net["norms"] is None:
            return x
        x, norm = normalise(next(norms), x, how, valid)
        later.append(norm)
        return x

    def linear(i, x):
        x = x @ net["weights"][i]
        x = x if net["biases"][i] is None else x + net["biases"][i]
        return x if masks is None or i + 1 == len(net["weights"]) else x * masks[i]

    if net["input_norm"] is not None:
        x, new["input_norm"] = normalise(net["input_norm"], x, how, valid)
    last = len(net["weights"]) - 1
    act = lambda x: activate(how.activation, x)
    if how.body == "mlp":
        for i in range(last):
            after = how.norm_place == "after"
            x = normed(act(linear(i, x))) if after else act(normed(linear(i, x)))
    else:
        x = linear(0, x)
        for i in range(1, last, 2):
            if how.body == "simba":
                x = x + linear(i + 1, act(linear(i, normed(x))))
            else:
                x = x + act(normed(linear(i + 1, act(normed(linear(i, x))))))
    if net["final_norm"] is not None:
        x, _ = normalise(net["final_norm"], x, how)
    new["norms"] = later or None
    return linear(last, x), new


def project(net, how):
    """A network after a step: weights, and scales of norms, of unit length."""
    if how.unit == "none":
        return net
    weights = [w / np.linalg.norm(w, axis=0) for w in net["weights"]]
    if how.unit == "hidden":
        weights[-1] = net["weights"][-1]
    net = dict(net, weights=weights)
    if how.unit == "all":

        def unit(norm):
            if norm is None:
                return None
            square = (norm["scale"] ** 2).sum()
            square += 0 if norm["shift"] is None else (norm["shift"] ** 2).sum()
            factor = np.sqrt(len(norm["scale"]) / square)
            shift = None if norm["shift"] is None else factor * norm["shift"]
            return dict(norm, scale=factor * norm["scale"], shift=shift)

        net["norms"] = net["norms"] and [unit(norm) for norm in net["norms"]]
        net["input_norm"], net["final_norm"] = unit(net["input_norm"]), unit(net["final_norm"])
    return net


def statistics(net, source):
    """A network with the running statistics of another."""
    take = lambda a, b: a if a is None or "mean" not in a else a | {k: b[k] for k in STATISTICS}
    norms = net["norms"] and [take(a, b) for a, b in zip(net["norms"], source["norms"])]
    return dict(net, norms=norms, input_norm=take(net["input_norm"], source["input_norm"]))


STATISTICS = ("mean", "var", "updates")


def descend(algo, trained, loss, rate, hp):
    """One step of Adam or AdamW, gradients cut if wanted -> trained, loss."""
    grad = gradient(CORRECTIONS.frozen(loss, trained.params), trained.params)
    if algo.max_grad_norm is not None:
        length = math.sqrt(sum((g**2).sum() for g in jax.tree.leaves(grad)))
        grad = jax.tree.map(lambda g: g * min(1, algo.max_grad_norm / length), grad)
    b1, b2, count = algo.adam_b1, algo.adam_b2, trained.count + 1
    first = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, trained.first, grad)
    second = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g**2, trained.second, grad)

    def step(p, m, v):
        direction = m / (1 - b1**count) / (np.sqrt(v / (1 - b2**count)) + 1e-8)
        if algo.optimizer == "adamw" and p.ndim > 1:
            direction = direction + hp["weight_decay"] * p
        return p - rate * direction

    params = jax.tree.map(step, trained.params, first, second)
    return Adam(params, first, second, count), loss(trained.params)


# --- heads ----------------------------------------------------------------------------------


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def atoms(algo):
    return np.linspace(-algo.value_bound, algo.value_bound, algo.atoms)


def value(algo, out):
    if algo.head == "categorical":
        return softmax(out) @ atoms(algo)
    return out.mean(-1) if algo.head == "quantile" else out[..., 0]


def reduced(algo, out, how):
    """[critics, batch, outputs] -> [batch, outputs or more]."""
    if how == "first":
        return out[0]
    if how == "truncated":
        pooled = np.sort(np.concatenate(list(out), -1), -1)
        return pooled[:, : len(out) * (algo.quantiles - algo.dropped_quantiles)]
    if how == "mean":
        return np.log(softmax(out).mean(0)) if algo.head == "categorical" else out.mean(0)
    least = value(algo, out).argmin(0)
    return out[least, np.arange(out.shape[1])]


def target(algo, out, reward, discount, bonus):
    """What critics learn, row by row."""
    if algo.head == "quantile":
        return reward[:, None] + discount[:, None] * (out + bonus[:, None])
    if algo.head != "categorical":
        return reward + discount * (out[:, 0] + bonus)
    z, bound = atoms(algo), algo.value_bound
    gap, found = z[1] - z[0], np.zeros((len(out), algo.atoms))
    for row, (p, r, g, extra) in enumerate(zip(softmax(out), reward, discount, bonus)):
        if algo.categorical_target == "projected":
            for mass, at in zip(p, np.clip(r + g * (z + extra), -bound, bound)):
                below = min(int((at + bound) // gap), algo.atoms - 2)
                share = (at - z[below]) / gap
                found[row, below] += mass * (1 - share)
                found[row, below + 1] += mass * share
            continue
        y = np.clip(r + g * (p @ z + extra), -bound, bound)
        if algo.categorical_target == "two-hot":
            below = min(int((y + bound) // gap), algo.atoms - 2)
            share = (y - z[below]) / gap
            found[row, below], found[row, below + 1] = 1 - share, share
            continue
        phi = lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2)))
        edges = [
            (phi((c + gap / 2 - y) / s) - phi((c - gap / 2 - y) / s))
            for c, s in ((c, 0.75 * gap) for c in z)
        ]
        found[row] = np.array(edges) / sum(edges)
    return found


def losses(algo, out, wanted):
    """[critics, batch] of what critics lose, and of errors of their values."""
    if algo.head == "categorical":
        logs = np.log(softmax(out))
        return -(wanted * logs).sum(-1), value(algo, out) - wanted @ atoms(algo)
    if algo.head == "quantile":
        n, lost = algo.quantiles, np.zeros(out.shape[:2])
        for i in range(n):
            u = wanted[None] - out[..., i : i + 1]
            huber = np.where(abs(u) <= 1, 0.5 * u**2, abs(u) - 0.5)
            lost += (abs((i + 0.5) / n - (u < 0)) * huber).mean(-1) / n
        return lost, value(algo, out) - wanted.mean(-1)
    error = value(algo, out) - wanted
    if algo.head == "huber":
        return np.where(abs(error) <= 1, 0.5 * error**2, abs(error) - 0.5), error
    return error**2, error


# --- the update -----------------------------------------------------------------------------


def critics_of(algo, nets, obs, action, valid=None):
    """-> outputs [critics, batch, n], critics with new running statistics."""
    x = np.concatenate([obs, action], -1)
    outs, new = zip(*(forward(net, x, algo.critic_network, valid) for net in nets))
    return np.stack(outs), list(new)


def rates(algo, hp, updates):
    """Learning rates at this update."""
    if algo.lr_schedule == "constant":
        return hp
    done = min(updates / hp["schedule_updates"], 1)
    left = 1 - done if algo.lr_schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    factor = hp["lr_end"] + (1 - hp["lr_end"]) * left
    return hp | {name: hp[name] * factor for name in hp if name.endswith("_lr")}


def learn_critics(algo, state, targets, hp, b, obs, next_obs, action, bonus):
    """-> critics, loss, losses, errors, values of s'."""
    batched = algo.critic_network.batched
    alive = 1 if algo.ignore_done else 1 - b["terminated"]
    reward, discount = hp["reward_scale"] * b["reward"], hp["gamma"] ** b["steps"] * alive
    n, join = len(obs), lambda x, y: np.concatenate([x, y])
    both = join(obs, next_obs), join(b["action"], action), join(b["valid"], b["valid"])

    def passes(critics, targets):
        if not batched:
            out, new = critics_of(algo, critics, obs, b["action"])
            return out, critics_of(algo, targets, next_obs, action)[0], new
        out, new = critics_of(algo, critics, *both)
        after = out if targets is None else critics_of(algo, targets, *both)[0]
        return out[:, :n], after[:, n:], new

    _, next_out, new = passes(state["critic"].params, targets)
    after = reduced(algo, next_out, algo.target_reduce)
    wanted = target(algo, after, reward, discount, bonus)  # no gradient passes through it

    def per_critic(critics):
        lost, _ = losses(algo, passes(critics, targets)[0], wanted)
        return averaged(b["weight"] * lost, kept(algo, b))

    total = lambda critics: per_critic(critics).sum()
    critic, loss = descend(algo, state["critic"], total, hp["critic_lr"], hp)
    nets = [project(net, algo.critic_network) for net in critic.params]
    nets = [statistics(net, source) for net, source in zip(nets, new)]
    _, error = losses(algo, passes(state["critic"].params, targets)[0], wanted)
    return critic._replace(params=nets), loss, per_critic(state["critic"].params), error, after


def learn_actor(algo, state, loss, hp, forwards):
    """One step of the actor; `forwards` gives the network with new running statistics."""
    actor, value = descend(algo, state["actor"], loss, hp["actor_lr"], hp)
    net = project(actor.params, algo.actor_network)
    return actor._replace(params=statistics(net, forwards(state["actor"].params))), value


def new_target(algo, hp, old, critic, updates):
    if algo.target_update == "none":
        return None
    if (updates + 1) % algo.target_every:
        return old
    return critic if algo.target_update == "copy" else follow(old, critic, hp["tau"])


def sac(algo, state, hp, b, noise, updates, subset=None):
    """One update -> state, metrics, priorities; `subset` are the critics that the target has."""
    hp = rates(algo, hp, updates)
    obs, next_obs = seen(state, b["obs"]), seen(state, b["next_obs"])
    alpha = np.exp(state["temperature"].params)
    valid = b["valid"] if algo.actor_network.batched else None

    def act(actor, obs, valid=None):
        out, new = forward(actor, obs, algo.actor_network, valid)
        mean, raw = np.split(out, 2, -1)
        low, high = algo.log_std_range
        if algo.std == "tanh":
            raw = low + (high - low) * (1 + np.tanh(raw)) / 2
        raw = np.clip(raw, low, high)
        return *tanh_gaussian(np.concatenate([mean, raw], -1), "exp", "exact", noise), new

    actor_first = algo.order == "actor-first"
    due = updates % algo.actor_every == (0 if actor_first else algo.actor_every - 1)
    new, log_p_now = dict(state), averaged(act(state["actor"].params, obs, valid)[1], b["valid"])

    def learn_acting(critics):
        """The new actor and temperature, if it is their turn -> their metrics."""
        if not due:
            return {}

        def actor_loss(actor):
            action, log_p, _ = act(actor, obs, valid)
            out, _ = critics_of(algo, critics, obs, action)
            worth = value(algo, reduced(algo, out, algo.actor_reduce))
            return averaged(alpha * log_p - worth, b["valid"])

        forwards = lambda actor: act(actor, obs, valid)[2]
        new["actor"], pi_loss = learn_actor(algo, state, actor_loss, hp, forwards)
        surplus = -log_p_now - hp["target_entropy"] * algo.spec.action.size
        new["temperature"], x_loss = state["temperature"].descend(
            lambda x: x * surplus, hp["alpha_lr"]
        )
        return {"actor_loss": pi_loss, "ent_coef_loss": x_loss, "log_prob": log_p_now}

    more = learn_acting(state["critic"].params) if actor_first else {}
    action, log_p, _ = act(new["actor"].params, next_obs)
    bonus = -np.exp(new["temperature"].params) * log_p
    targets = state["target"]
    if subset is not None:
        targets = [targets[i] for i in subset]
    critic, q_loss, each, error, after = learn_critics(
        algo, state, targets, hp, b, obs, next_obs, action, bonus
    )
    more = more if actor_first else learn_acting(critic.params)
    new["critic"] = critic
    new["target"] = new_target(algo, hp, state["target"], critic.params, updates)
    next_value = value(algo, after) + bonus
    error = np.abs(error).mean(0)
    metrics = {
        "critic_loss": q_loss,
        **numbered("critic_loss", each),
        "td_error": averaged(error, kept(algo, b)),
        "target_value": averaged(next_value, kept(algo, b)),
    }
    return new, metrics | more, error


def td3(algo, state, hp, b, noise, updates):
    """One update -> state, metrics, priorities."""
    hp = rates(algo, hp, updates)
    obs, next_obs = seen(state, b["obs"]), seen(state, b["next_obs"])
    valid = b["valid"] if algo.actor_network.batched else None
    smooth = np.clip(hp["target_noise"] * noise, -hp["noise_clip"], hp["noise_clip"])
    act = lambda net, obs, valid=None: forward(net, obs, algo.actor_network, valid)
    action = np.clip(np.tanh(act(state["target_actor"], next_obs)[0]) + smooth, -1, 1)
    critic, q_loss, each, error, after = learn_critics(
        algo, state, state["target_critic"], hp, b, obs, next_obs, action, np.zeros(len(obs))
    )

    def actor_loss(actor):
        out, _ = critics_of(algo, critic.params, obs, np.tanh(act(actor, obs, valid)[0]))
        return -averaged(value(algo, reduced(algo, out, algo.actor_reduce)), b["valid"])

    new, due = dict(state, critic=critic), (updates + 1) % algo.delay == 0
    if due:
        forwards = lambda actor: act(actor, obs, valid)[1]
        new["actor"], pi_loss = learn_actor(algo, state, actor_loss, hp, forwards)
        new["target_actor"] = follow(state["target_actor"], new["actor"].params, hp["tau"])
        new["target_critic"] = new_target(algo, hp, state["target_critic"], critic.params, updates)
    error = np.abs(error).mean(0)
    metrics = {
        "critic_loss": q_loss,
        **numbered("critic_loss", each),
        "td_error": averaged(error, kept(algo, b)),
        "target_value": averaged(value(algo, after), kept(algo, b)),
    }
    return new, metrics | ({"actor_loss": pi_loss} if due else {}), error


def subsets(n, size):
    return combinations(range(n), size)
