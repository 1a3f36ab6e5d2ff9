"""PB2, population based bandits. Parker-Holder et al. 2020, https://arxiv.org/abs/2002.02518."""

from __future__ import annotations

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Bool, Float, Int

from thespis.tuning import gp, hyper
from thespis.tuning.base import from_parents, priors, replaced, where
from thespis.tuning.pbt import PBT


class Gains(eqx.Module):
    """A ring of the last rounds: how much members gained, with which hyper-parameters."""

    tuned: Bool[Array, "hypers"]  # may change
    round: Int[Array, ""]
    last: Float[Array, "members"]  # scores at the last round; those of their parents for copies
    x: Float[Array, "rounds members d"]  # hyper-parameters, as shares of their priors' ranges
    gain: Float[Array, "rounds members"]
    known: Bool[Array, "rounds members"]


@dataclass(frozen=True)
class PB2(PBT):
    """PBT in which a Gaussian process chooses the hyper-parameters of copies."""

    history: int = 10
    """Number of rounds of data in the Gaussian process."""
    candidates: int = 256
    """Number of candidates that are compared for every copy."""

    def begin(self, key, Hyper, fixed, members):
        hps, tuned = super().begin(key, Hyper, fixed, members)
        past = (self.history, members)
        return hps, Gains(
            tuned=tuned,
            round=jnp.zeros((), jnp.int32),
            last=jnp.full(members, jnp.nan, jnp.float32),
            x=jnp.zeros((*past, len(priors(Hyper, self.tuned)))),
            gain=jnp.zeros(past),
            known=jnp.zeros(past, bool),
        )

    def exchange(self, memory: Gains, key, hps, scores, age):
        self.check(type(hps), *scores.shape)
        k_exploit, k_explore = random.split(key)
        parents = self.select(k_exploit, scores, age)
        copied = from_parents(parents, hps)
        memory = self.learn(memory, hps, scores.mean(1), parents)
        if priors(type(hps), self.tuned) and (self.replaced or self.exploit == "t-test"):
            new = self.propose(memory, k_explore, copied, replaced(parents))
        else:  # only members that diverged are replaced
            new = self.vary(k_explore, copied)
        return memory, parents, where(replaced(parents), memory.tuned, new, copied)

    def learn(self, m: Gains, hps, score, parents) -> Gains:
        """Stores how much every member gained since the last round."""
        i, gain = m.round % self.history, score - m.last
        known = jnp.isfinite(gain)
        return Gains(
            tuned=m.tuned,
            round=m.round + 1,
            last=score[parents],
            x=m.x.at[i].set(self.shares(m.tuned, hps)),
            gain=m.gain.at[i].set(jnp.where(known, gain, 0.0)),
            known=m.known.at[i].set(known),
        )

    def shares(self, tuned, hps) -> Float[Array, "members d"]:
        """Returns hyper-parameters as shares of their priors' ranges; 0 if they may not change."""
        known = priors(type(hps), self.tuned)
        x = jnp.stack([p.share(getattr(hps, name)) for name, p in known.items()], 1)
        return jnp.where(self.free(tuned, hps)[None], x, 0.0)

    def free(self, tuned, hps) -> Bool[Array, "d"]:
        """Tells which hyper-parameters with a prior may change."""
        names = list(hyper.declared(type(hps)))
        return jnp.stack([tuned[names.index(name)] for name in priors(type(hps), self.tuned)])

    def propose(self, m: Gains, key, copied, new: Bool[Array, "members"]):
        """Chooses, for one copy after another, the candidate that may gain most (algorithm 1)."""
        past, now = self.standardized(m), m.round.astype(jnp.float32)
        entry = gp.fit(past)
        parent_shares = self.shares(m.tuned, copied)
        members, d = parent_shares.shape
        points = random.uniform(key, (members * self.candidates, d)).reshape(members, -1, d)
        # Half of the candidates are anywhere, half near the parent's hyper-parameters.
        near = jnp.clip(parent_shares[:, None] + 0.3 * (points - 0.5), 0, 1)
        points = jnp.where((jnp.arange(self.candidates) % 2 == 0)[None, :, None], points, near)
        points = jnp.where(self.free(m.tuned, copied)[None, None], points, 0.0)
        beta = jnp.sqrt(0.2 + jnp.log(jnp.maximum(0.4 * now, 1.0)))
        unseen = lambda x: gp.Data(x, jnp.full(len(x), now), jnp.zeros(len(x)), x[:, 0] >= 0)

        def choose(i, tried: gp.Data) -> gp.Data:
            # What others are about to try lowers the uncertainty, and leaves the mean as it is.
            both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), past, tried)
            mean, _ = gp.posterior(past, unseen(points[i]), entry)
            _, std = gp.posterior(both, unseen(points[i]), entry)
            best = points[i, jnp.argmax(mean + beta * std)]
            x = tried.x.at[i].set(jnp.where(new[i], best, tried.x[i]))
            return gp.Data(x, tried.time, tried.y, tried.known.at[i].set(True))

        others = eqx.tree_at(lambda data: data.known, unseen(parent_shares), ~new)
        x = jax.lax.fori_loop(0, members, choose, others).x
        known = priors(type(copied), self.tuned)
        return replace(copied, **{name: p.at(x[:, i]) for i, (name, p) in enumerate(known.items())})

    def standardized(self, m: Gains) -> gp.Data:
        """Returns the stored gains with mean 0 and variance 1."""
        known, gain = m.known.reshape(-1), m.gain.reshape(-1)
        count = jnp.maximum(known.sum(), 1).astype(jnp.float32)
        mean = gain.sum() / count
        std = jnp.sqrt(jnp.where(known, (gain - mean) ** 2, 0.0).sum() / count)
        y = jnp.where(known, (gain - mean) / jnp.maximum(std, 1e-6), 0.0)
        ago = (m.round - 1 - jnp.arange(self.history)) % self.history
        time = jnp.repeat((m.round - ago).astype(jnp.float32), m.known.shape[1])
        return gp.Data(m.x.reshape(known.size, -1), time, y, known)
