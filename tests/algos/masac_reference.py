"""Multi-agent SAC once more: NumPy, 64 bits, agent by agent, gradients by finite differences."""

from __future__ import annotations

import numpy as np
from jax import numpy as jnp

from tests.algos.reference import (
    BATCH,
    chances,
    entropies,
    follow,
    forward,
    numbered,
    tanh_gaussian,
    vector,
)


def of(team, agent, agents, x):
    """What a team's network for one agent makes of x [batch, n]."""
    networks = team["networks"]
    if len(networks) > 1:
        return forward(networks[agent], x)
    name = np.tile(np.eye(agents)[agent], (len(x), 1)) if agents > 1 else np.zeros((len(x), 0))
    return forward(networks[0], np.concatenate([x, name], -1))


class Sight:
    """An observation as its parts, a list over agents where each has its own."""

    def __init__(self, algo, state, obs):
        agents = range(algo.agents)
        own, of_state = (None, None) if state["stats"] is None else state["stats"]
        pick = lambda tree, i: (
            {k: pick(v, i) for k, v in tree.items()} if isinstance(tree, dict) else tree[:, i]
        )
        stats = lambda i: None if own is None else take(own, i)
        self.own = [vector(stats(i), pick(obs["agents"], i)) for i in agents]
        world = np.concatenate(self.own, -1)
        if "state" in obs:
            world = vector(of_state, obs["state"])
        n = len(world)
        self.alive = [np.ones(n)] * algo.agents
        if "alive" in obs:
            self.alive = [obs["alive"][:, i] for i in agents]
            world = np.concatenate([world, obs["alive"]], -1)
        self.ended = [1 - a for a in self.alive]
        if "ended" in obs:
            self.ended = [obs["ended"][:, i] for i in agents]
        self.world = world
        sizes = [np.tile(np.arange(algo.size) < size, (n, 1)) for size in algo.sizes]
        mask = lambda i: obs["agents"]["action_mask"][:, i] > 0
        self.legal = [s & mask(i) if algo.masked else s for i, s in enumerate(sizes)]


def take(stats, i):
    """The statistics of one agent."""
    if isinstance(stats, dict):
        return {k: take(v, i) for k, v in stats.items()}
    return None if stats is None else tuple(x[i] for x in stats)


def inputs(algo, sight, actions, view):
    """What critics read; `actions` are lists of numbers or one-hot choices, view None a team's."""
    agents = range(algo.agents)
    sizes = [np.where(np.arange(algo.size) < size, 1.0, 0.0) for size in algo.sizes]
    actions = [a * size for a, size in zip(actions, sizes)]
    own = [actions[view]] if algo.continuous and view is not None else []
    if algo.critic == "own":
        return np.concatenate([sight.own[view], *own], -1)
    if algo.critic == "state":
        return np.concatenate([sight.world, *own], -1)
    present = [actions[j] * sight.alive[j][:, None] for j in agents]
    if view is None:
        return np.concatenate([sight.world, *present], -1)
    order = [*range(view, algo.agents), *range(view)]
    seen = [sight.own[j] * sight.alive[j][:, None] for j in order]
    return np.concatenate([*seen, *own, *(present[j] for j in order[1:])], -1)


def update(algo, state, hp, b, noise, pick):
    """One update -> state, metrics, priorities.

    `noise` [batch, agents, size] is every normal draw, `pick` chooses one of the legal actions.
    """
    now, then = (Sight(algo, state, b[name]) for name in ("obs", "next_obs"))
    agents, team = range(algo.agents), algo.critic == "joint" and not algo.individual_rewards
    views = [None] if team and algo.continuous else list(agents)
    at = lambda view: 0 if view is None else view
    if algo.temperature == "fixed":
        alpha = np.full(algo.agents, hp["alpha"])
    else:
        x = state["temperature"].params
        alpha = np.broadcast_to(x if algo.temperature == "linear" else np.exp(x), algo.agents)

    def policies(actor, sight):
        """Actions (numbers or one-hot), probabilities (None if continuous), entropies."""
        acts, ps, hs = [], [], []
        for i in agents:
            out = of(actor, i, algo.agents, sight.own[i])
            if algo.continuous:
                size = algo.sizes[i]
                mean, raw = np.split(out, 2, -1)
                part = np.concatenate([mean[:, :size], raw[:, :size]], -1)
                action, log_p = tanh_gaussian(part, "exp", algo.log_derivative, noise[:, i, :size])
                rest = np.zeros((len(action), algo.size - size))
                acts.append(np.concatenate([action, rest], -1))
                ps.append(None)
                hs.append(-log_p)
            else:
                p = chances(out, sight.legal[i])
                acts.append(np.eye(algo.size)[pick(sight.legal[i])])
                ps.append(p)
                hs.append(entropies(p))
        return acts, ps, hs

    def values(critics, sight, actions, view):
        """[critics, batch, outputs]."""
        x = inputs(algo, sight, actions, view)
        return np.stack([of(critic, at(view), len(views), x) for critic in critics])

    def soft(actor, critics, sight, frozen=None):
        """Of every view the value under the policies; others act as `frozen` says, if given."""
        acts, ps, hs = policies(actor, sight)
        out = []
        for view in views:
            mixed = acts
            if frozen is not None and view is not None:
                mixed = [acts[j] if j == view else frozen[j] for j in agents]
            q = values(critics, sight, mixed, view).min(0)
            out.append(q[:, 0] if algo.continuous else (ps[view] * q).sum(-1))
        return out, hs

    next_q, entropy = soft(state["actor"].params, state["target"], then)
    bonus = [alpha[i] * entropy[i] for i in agents]
    all_bonus = sum(then.alive[i] * bonus[i] for i in agents)
    next_value = [q + (all_bonus if team else bonus[at(v)]) for v, q in zip(views, next_q)]
    weights = algo.reward_weights or np.full(algo.agents, 1 / algo.agents)

    targets, kept = [], []
    for view, value in zip(views, next_value):
        reward = b["reward"]
        if reward.ndim == 2:
            reward = reward[:, view] if algo.individual_rewards else reward @ weights
        over, good = b["terminated"], b["valid"]
        if view is not None:
            over = np.maximum(over, then.ended[view])
            good = good * now.alive[view]
            if algo.n_step > 1:
                good = np.where((then.alive[view] == 0) & (over == 0), 0, good)
        going = 1 if algo.ignore_done else 1 - over
        if algo.drop_truncated:
            good = good * (1 - b["truncated"])
        targets.append(hp["reward_scale"] * reward + hp["gamma"] ** b["steps"] * going * value)
        kept.append(good)

    if algo.continuous:
        stored = [b["action"][:, i] for i in agents]
    else:
        stored = [np.eye(algo.size)[b["action"][:, i].astype(int)] for i in agents]

    def errors(critics):
        out = []
        for view, target in zip(views, targets):
            q = values(critics, now, stored, view)
            q = q[..., 0] if algo.continuous else (q * stored[view]).sum(-1)
            out.append(q - target)
        return out

    def means(xs, valid):
        """Over all kept entries of all views that share a network; a list over networks."""
        if algo.shared_weights:
            return [sum((x * v).sum(-1) for x, v in zip(xs, valid)) / sum(v.sum() for v in valid)]
        return [(x * v).sum(-1) / v.sum() for x, v in zip(xs, valid)]

    def per_critic(critics):
        return sum(means([b["weight"] * e**2 for e in errors(critics)], kept))

    critic, q_loss = state["critic"].descend(lambda c: per_critic(c).sum(), hp["critic_lr"])
    frozen, _, _ = policies(state["actor"].params, now)
    acted = [b["valid"] * now.alive[i] for i in agents]

    def actor_loss(actor):
        qs, hs = soft(actor, critic.params, now, frozen)
        if views == [None]:
            gain = qs[0] + sum(now.alive[i] * alpha[i] * hs[i] for i in agents)
            return -sum(means([gain], [b["valid"]]))
        return -sum(means([q + alpha[i] * h for i, (q, h) in enumerate(zip(qs, hs))], acted))

    actor, pi_loss = state["actor"].descend(actor_loss, hp["actor_lr"])
    hs = policies(state["actor"].params, now)[2]
    if algo.continuous:
        wanted = [np.full(len(h), hp["target_entropy"] * n) for h, n in zip(hs, algo.sizes)]
    else:
        count = [legal.sum(-1) for legal in now.legal]
        unit = (
            (lambda n: n) if algo.entropy_unit == "actions" else lambda n: np.log(np.maximum(n, 1))
        )
        wanted = [hp["discrete_entropy"] * unit(n) for n in count]
    more = [h - w for h, w in zip(hs, wanted)]
    surplus = np.array(means(more, acted))

    def temperature_loss(x):
        return ((np.exp(x) if algo.temperature == "exp" else x) * surplus).sum()

    temperature, x_loss = None, 0.0
    if algo.temperature != "fixed":
        temperature, x_loss = state["temperature"].descend(temperature_loss, hp["alpha_lr"])
    if algo.temperature == "linear":
        temperature = temperature._replace(params=np.maximum(temperature.params, 0))

    error = [np.abs(e).mean(0) for e in errors(state["critic"].params)]
    metrics = {
        "actor_loss": pi_loss,
        "critic_loss": q_loss,
        **numbered("critic_loss", per_critic(state["critic"].params)),
        "ent_coef": alpha.mean(),
        "ent_coef_loss": x_loss,
        "total_loss": pi_loss + q_loss + x_loss,
        "td_error": np.mean(means(error, kept)),
        "target_value": np.mean(means(next_value, kept)),
        "entropy": np.mean(means(hs, acted)),
        "target_entropy": np.mean(means(wanted, acted)),
        "alive": np.mean(now.alive),
    }
    if algo.store_logits and not algo.continuous:
        stored_logits = [b["extra"]["logits"][:, i] for i in agents]
        then_p = [chances(logits, legal) for logits, legal in zip(stored_logits, now.legal)]
        metrics["behaviour_entropy"] = np.mean(means([entropies(p) for p in then_p], acted))
    new = {
        "actor": actor,
        "critic": critic,
        "target": follow(state["target"], critic.params, hp["tau"]),
        "temperature": temperature,
        "stats": state["stats"],
        "reward_stats": state["reward_stats"],
    }
    each = sum(e * k for e, k in zip(error, kept)) / np.maximum(sum(kept), 1)
    return new, metrics, each


def last_legal(legal):
    """The last legal action of each row, or 0."""
    n = legal.shape[-1]
    return np.where(legal.any(-1), n - 1 - np.argmax(legal[..., ::-1], -1), 0)


def fixed_draws(monkeypatch, agents: int, size: int) -> np.ndarray:
    """Every normal draw becomes this one, every choice the last legal action."""
    noise = np.random.default_rng(5).normal(size=(BATCH, agents, size)).astype(np.float32)
    draw = lambda key, shape: jnp.broadcast_to(jnp.asarray(noise), shape)
    monkeypatch.setattr("thespis.xla.fast_random.normal", draw)

    def last(self, key):
        n = self.legal.shape[-1]
        found = n - 1 - jnp.argmax(self.legal[..., ::-1], -1)
        return jnp.where(self.legal.any(-1), found, 0)

    monkeypatch.setattr("thespis.nn.distributions.Categorical.sample", last)
    return noise.astype(np.float64)
