"""TAAC: an actor-critic that decides when to act. Yu et al. 2021, https://arxiv.org/abs/2104.06521.

At every step the actor proposes a new trajectory of actions. A switching policy, which compares
the values of both, then either begins it (b = 1) or continues the present one (b = 0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import nn, random
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, Int

from thespis.algos.action_repeats import PROBABILITY_EDGES, histograms, repetitions
from thespis.algos.actor_critic import ActorCritic
from thespis.algos.critic_learning import CRITIC_OPTIONS, numbered
from thespis.algos.hyper_parameters import Discounting, SoftLearningRates
from thespis.algos.presets.taac import PRESETS
from thespis.algos.rewards import REWARD_OPTIONS
from thespis.algos.taac_networks import Actor, EncodedCritics
from thespis.algos.temperature import alpha_of, init_temperature, update_temperature
from thespis.core import Histogram, Mean, Metrics, Mode, Row, ThespisError, mean, polyak, where
from thespis.nn.distributions import TanhGaussian
from thespis.nn.heads import smallest
from thespis.nn.losses import explained_variance, huber
from thespis.nn.networks import MLP, Critics
from thespis.nn.normalization import Running
from thespis.nn.train_state import TrainState
from thespis.replay.priorities import Drawn
from thespis.tuning.hyper import LogUniform, Uniform, prior, special_prior
from thespis.xla import fast_random


class State(eqx.Module):
    actor: TrainState  # of an `Actor`
    critic: TrainState  # of `EncodedCritics`
    target: EncodedCritics
    temperature: TrainState | None  # log alpha [2]: of the switch and of the proposal
    stats: Any  # running statistics of the observations, or None
    reward_stats: Running | None


class Memory(eqx.Module):
    """The memory of n environments."""

    trajectory: Float[Array, "n parts"]  # tau
    repeats: Int[Array, "n"]  # steps for which it was followed; 0 at the start of an episode


class Extra(eqx.Module):
    """What is stored with a step; training recomputes none of it."""

    last: Float[Array, "... parts"]  # tau-, before the step
    trajectory: Float[Array, "... parts"]  # tau, which the step followed
    repeats: Int[Array, "..."]  # steps for which tau- was followed
    switch: Bool[Array, "..."]  # whether tau is new, by choice or by necessity


class Windows(eqx.Module):
    """Consecutive rows [length, batch, ...], with importance weights and validity [batch]."""

    rows: Row
    weight: Float[Array, "batch"]
    valid: Float[Array, "batch"]
    drawn: Drawn | None = None


@dataclass(frozen=True)
class TAAC(ActorCritic):
    """Repeats its last action until a new one is worth more."""

    n_step: int = 3
    """Maximum number of rewards summed before bootstrapping; replayed windows have one row more."""
    returns: Literal["compare-through", "one-step", "multi-step"] = "compare-through"
    """Length of returns: until the trajectory changes (compare-through), one step, or all n_step
    steps."""
    td_loss: Literal["squared", "huber"] = "squared"
    """Loss of a TD error e: e^2, or the Huber loss, e^2 / 2 up to huber_delta and linear beyond."""
    first: Literal["new", "zero", "random"] = "new"
    """Trajectory at the start of an episode: a new one, or the agent may continue a zero or a
    random one. Greedy policies (evaluations, videos, exports) use zero instead of random."""
    max_repeat_steps: int | None = None
    """Maximum number of steps of a trajectory, in training and evaluation."""
    advantage_clip: tuple[float | None, ...] | None = None
    """Bounds (low high) of the advantage in the switching policy; none means no bound."""
    min_prob: tuple[float, ...] | None = None
    """Small probabilities of switch and proposal (or one for both) that determine their target
    entropies."""
    encoder: tuple[int, ...] = ()
    """Widths of layers shared by all networks, which only the critics' loss trains."""
    embed: bool = True
    """Embed each part of a trajectory by a linear layer, as wide as the actor's other input."""
    gammas: tuple[float, ...] | None = None
    """Discount factors of the dimensions of a vector reward, instead of gamma."""
    target_period: int = 1
    """Number of updates between updates of the target critics."""
    normalize_rewards: bool = False
    """Normalise rewards by their running mean and standard deviation, clipped to reward_clip."""
    stratified: bool = False
    """Sample windows by strata over environments and time, instead of independently; prioritised
    windows are always stratified over the priorities."""
    recent_share: float = 0.0
    """Fraction of the windows from the last recent_steps of every environment."""
    recent_steps: int = 1000
    """Number of steps of every environment that count as recent."""
    epsilon_greedy: float = 0.0
    """Probability of sampling proposal or switch in evaluations, instead of taking the mode."""

    class Hyper(Discounting, SoftLearningRates):
        alpha_lr: float = prior(
            3e-4, LogUniform(3e-5, 3e-3), "learning rate of the temperatures", low=0
        )
        reward_clip: float = prior(5.0, LogUniform(1, 10), "bound of normalised rewards", low=0)
        huber_delta: float = special_prior(
            1.0, LogUniform(0.1, 10), "error beyond which the Huber loss is linear", 0
        )
        alpha: float = prior(1.0, LogUniform(1e-2, 1), "initial temperatures", low=0, initial=True)
        target_entropy: float = prior(
            round(math.log(0.2), 4), Uniform(-2.5, -0.5), "target entropy per action dimension"
        )
        target_switch_entropy: float = prior(
            0.1985, Uniform(0.05, 0.6), "target entropy of the switch", low=0, high=math.log(2)
        )

    plain_networks: ClassVar[bool] = True
    unsupported: ClassVar[tuple[str, ...]] = (*CRITIC_OPTIONS, *REWARD_OPTIONS, "shared_encoder")
    presets: ClassVar[dict[str, dict]] = PRESETS
    parts: ClassVar[int] = 1  # of a trajectory, each as large as an action

    def __post_init__(self):
        super().__post_init__()
        _ = self.box  # refuses other actions
        dims = self.spec.reward_dim or 1
        for name, legal in (("advantage_clip", (2,)), ("min_prob", (1, 2)), ("gammas", (dims,))):
            values = getattr(self, name)
            if values is not None and len(values) not in legal:
                counts = " or ".join(map(str, legal))
                raise ThespisError(f"{name} = {values}: give {counts} numbers")
        if self.privileged:
            raise ThespisError("TAAC asks its critics when it acts: it cannot have privileged keys")
        if self.prioritized_replay and self.recent_share:
            raise ThespisError("recent_share and prioritized_replay exclude each other: drop one")

    # --- trajectories [..., parts * action]: what variants override -------------------------

    def advance(self, trajectory: Array) -> Array:
        """Returns the trajectory one step further, tau0: here the same action."""
        return trajectory

    def new(self, proposal: Array, last: Array) -> Array:
        """Returns the trajectory that an actor's proposal begins, tau1: here that action."""
        return proposal

    def action(self, trajectory: Array) -> Array:
        """Returns the present action of a trajectory."""
        return trajectory[..., : self.box.size]

    # --- life cycle -------------------------------------------------------------------------

    def init(self, key, hp) -> State:
        """Makes actor, critics, both temperatures and statistics."""
        k_actor, k_critic = random.split(key)
        critic = self.make_critics(k_critic)
        alpha, dims = jnp.asarray(hp.alpha, jnp.float32), self.spec.reward_dim or 1
        return State(
            actor=self.train_state(self.make_actor(k_actor)),
            critic=self.train_state(critic),
            target=critic,
            temperature=init_temperature("log", jnp.stack([alpha, alpha])),
            stats=self.make_stats(),
            reward_stats=Running.create((dims,)) if self.normalize_rewards else None,
        )

    @property
    def encoded(self) -> int:
        """Returns the size of an encoded observation."""
        return (self.encoded_size(), *self.encoder)[-1]

    def make_actor(self, key) -> Actor:
        """Returns a new actor of an encoded observation and the last trajectory."""
        k_body, *k_parts = random.split(key, 1 + self.parts)
        obs, n = self.encoded, self.box.size
        nets = tuple(MLP(k, (n, obs), self.weight_init) for k in k_parts) if self.embed else ()
        inputs = obs + self.parts * (obs if self.embed else n)
        return Actor(nets, self.full_actor_network.build(k_body, inputs, 2 * n))

    def make_critics(self, key) -> EncodedCritics:
        """Returns new critics with their encoder."""
        k_encoder, k_critics = random.split(key)
        encoder, eyes = None, self.make_encoder(k_encoder) if self.images else None
        if self.encoder:
            encoder = MLP(k_encoder, (self.encoded_size(), *self.encoder), self.weight_init)
        sizes = (self.encoded + self.parts * self.box.size, self.spec.reward_dim or 1)
        critics = Critics(k_critics, self.critics, sizes, build=self.full_critic_network.build)
        return EncodedCritics(encoder, critics, eyes)

    def memory(self, key, n: int) -> Memory:
        """Returns zero trajectories, not followed so far."""
        return Memory(jnp.zeros((n, self.parts * self.box.size)), jnp.zeros(n, jnp.int32))

    def random_first(self, key, memory: Memory) -> Array:
        """Returns the present trajectories, and random ones where an episode starts.

        They are drawn from those that the policy can begin.
        """
        k_action, k_proposal = random.split(key)
        last, size = memory.trajectory, self.box.size
        draw = lambda k: fast_random.uniform(k, (len(last), size), -1, 1)
        start = jnp.zeros_like(last).at[:, :size].set(draw(k_action))
        return where(memory.repeats == 0, self.new(draw(k_proposal), start), last)

    def act(self, state: State, hp, memory: Memory, obs, key, step, mode: Mode):
        """Proposes a new trajectory, and begins it or continues the present one."""
        begin_at_random = self.first == "random" and mode != "greedy"
        k_proposal, k_switch, k_sample, *k_first = random.split(key, 4 if begin_at_random else 3)
        obs, n = self.see(state, obs), memory.repeats.shape[0]
        last = self.random_first(k_first[0], memory) if begin_at_random else memory.trajectory
        policy = self.policy(state, state.actor.params, obs, last)
        proposal = policy.sample(k_proposal)[0]
        if mode == "random":
            proposal = fast_random.uniform(k_sample, proposal.shape, -1, 1)
        sampled = jnp.full((2, n), mode == "explore")  # proposal and switch; else their modes
        if mode == "greedy" and self.epsilon_greedy:
            sampled = fast_random.uniform(k_sample, (2, n)) < self.epsilon_greedy
        if mode == "greedy":
            proposal = where(sampled[0], proposal, policy.mode())

        tau0, tau1 = self.advance(last), self.new(proposal, last)
        q0, q1 = (self.worth(state.critic.params, obs, tau) for tau in (tau0, tau1))
        chance = jnp.exp(self.log_beta(state, q0, q1)[..., 1])
        if mode == "random":
            chance, sampled = jnp.full(n, 0.5), jnp.ones_like(sampled)
        switch = chance > jnp.where(sampled[1], fast_random.uniform(k_switch, (n,)), 0.5)
        if self.max_repeat_steps is not None:
            switch = switch | (memory.repeats >= self.max_repeat_steps)
        switch = switch | self.begins(memory.repeats)
        trajectory = where(switch, tau1, tau0)
        extra = Extra(last, trajectory, memory.repeats, switch)
        repeats = jnp.where(switch, 0, memory.repeats) + 1
        return self.action(trajectory), Memory(trajectory, repeats), extra

    def observe(self, state: State, rows: Row) -> State:
        """Updates the statistics of observations and rewards."""
        state = super().observe(state, rows)
        if state.reward_stats is None:
            return state
        return eqx.tree_at(lambda s: s.reward_stats, state, state.reward_stats.update(rows.reward))

    def report(self, rows: Row) -> dict[str, Mean | Histogram]:
        """Returns how often actions were repeated in rows [...], and histograms."""
        begins = self.begins(rows.extra.repeats)
        return {**repetitions(rows, begins), **histograms(rows, begins)}

    # --- learning ---------------------------------------------------------------------------

    def sample(self, replay, demos, hp, key, step) -> Windows:
        """Draws windows of n_step + 1 rows."""
        length = self.n_step + 1
        valid = (replay.ring.size >= length).astype(jnp.float32)
        choices = self.stratified, self.recent_share, self.recent_steps
        start = replay.spread(key, self.batch_size, length, *choices)
        weight, drawn = replay.importance(start)
        valid = valid * (weight > 0).astype(jnp.float32)
        return Windows(replay.at(start.window(0, length)), weight, valid, drawn)

    def update(self, state: State, hp, b: Windows, key, step) -> tuple[State, Metrics, Array]:
        """Takes one gradient step of all networks, each by the others before the update.

        Rows are [length, batch].
        """
        k_proposal, k_switch = random.split(key)
        hp = self.scheduled(hp, step)
        rows, extra = b.rows, b.rows.extra
        obs = self.see(state, rows.obs)
        begins = self.begins(extra.repeats)
        acted = (1.0 - rows.final.astype(jnp.float32)) * b.valid[None]
        chose = acted * (1.0 - begins.astype(jnp.float32))  # could continue a trajectory
        average = lambda x, valid: mean(x.reshape(-1), valid.reshape(-1))
        alpha = self.alpha(state)
        tau0 = self.advance(extra.last)
        q0 = self.worth(state.critic.params, obs, tau0)

        # Actor: SAC's loss, in which values are weighed by the chance to take the proposal.
        def actor_loss(actor):
            proposal, log_p = self.policy(state, actor, obs, extra.last).sample(k_proposal)
            tau1 = self.new(proposal, extra.last)
            q1 = self.worth(state.critic.params, obs, tau1)
            log_beta = stop_gradient(self.log_beta(state, q0, q1))
            taken = jnp.where(begins, 1.0, jnp.exp(log_beta[..., 1]))
            loss = average(alpha[1] * log_p - taken * q1, acted)
            return loss, (actor, (tau1, q1, log_beta, average(log_p, acted)))

        trained = self.apply_gradient(state.actor, actor_loss, hp, hp.actor_lr)
        actor, (pi_loss, (tau1, q1, log_beta, log_p)) = trained

        # Critics: rewards along the window, and the value where its trajectory first changes.
        beta = jnp.exp(log_beta)
        next_beta, next_obs = beta[1:], obs[1:]
        value0, value1 = (self.lowest(state.target(next_obs, tau[1:])) for tau in (tau0, tau1))
        value = next_beta[..., :1] * value0 + next_beta[..., 1:] * value1
        switches = fast_random.uniform(k_switch, next_beta.shape[:-1]) < next_beta[..., 1]
        target, cut = self.backup(state, hp, rows, switches, value)
        valid = acted[:-1] * (1.0 - cut) if self.drop_truncated else acted[:-1]

        def critic_loss(critic):
            error = critic(obs[:-1], extra.trajectory[:-1]) - target[None]
            row_losses = b.weight[None, None] * self.error_loss(hp, error).mean(-1)
            losses = [average(loss, valid) for loss in row_losses]
            return sum(losses), (critic, (error, losses))

        trained = self.apply_gradient(state.critic, critic_loss, hp, hp.critic_lr)
        critic, (q_loss, (error, losses)) = trained

        # Temperatures: hold both entropies at their targets.
        entropies = jnp.stack([average(-(beta * log_beta).sum(-1), chose), -log_p])
        surplus = entropies - self.target_entropies(hp)
        temperature, alpha_loss = update_temperature("log", state.temperature, surplus, hp.alpha_lr)

        due = (step + 1) % self.target_period == 0
        follow, stay = lambda t: polyak(t, critic.params, hp.tau), lambda t: t
        new_target = jax.lax.cond(due, follow, stay, state.target)

        td_error = jnp.abs(error).mean((0, -1))
        total = lambda x: (x * b.valid[None]).sum()
        repeated = repetitions(rows, begins).items()
        switch_probabilities = Histogram.from_values(beta[..., 1], chose, PROBABILITY_EDGES)
        metrics = {
            "actor_loss": pi_loss,
            "critic_loss": q_loss,
            **numbered("critic_loss", losses),
            "ent_coef": alpha[1],
            "switch_ent_coef": alpha[0],
            "ent_coef_loss": alpha_loss,
            "total_loss": pi_loss + q_loss + alpha_loss,
            "log_prob": log_p,
            "switch_entropy": entropies[0],
            "switch_probability": average(beta[..., 1], chose),
            "resample_advantage": average(q1 - q0, chose),
            "td_error": average(td_error, valid),
            "target_value": average(value.mean(-1), valid),
            "return": average(target.mean(-1), valid),
            "explained_variance": explained_variance(target, target + error.mean(0), valid).mean(),
            **self.by_critic(target, error, valid),
            **{name: Mean(total(m.total), total(m.count)) for name, m in repeated},
            "switch_probabilities": switch_probabilities.over(0, 1),
        }
        new = State(actor, critic, new_target, temperature, state.stats, state.reward_stats)
        priorities = (td_error * valid).sum(0) * (1.0 / jnp.maximum(valid.sum(0), 1.0))
        return new, metrics, priorities

    # --- parts of the update ----------------------------------------------------------------

    def policy(self, state: State, actor: Actor, obs, last) -> TanhGaussian:
        """Returns pi(. | s, tau-). The actor uses the critics' encoder and does not train it."""
        raw = actor(state.critic.params.encode(obs), last)
        return TanhGaussian.from_outputs(raw, "exp", "exact")

    def lowest(self, q: Float[Array, "critics ... d"]) -> Float[Array, "... d"]:
        """Returns the worst critic's value of each reward dimension, by the sign of its weight."""
        sign = jnp.where(self.weights < 0, -1.0, 1.0).reshape((1,) * (q.ndim - 2) + (-1,))
        return sign * smallest(sign[None] * q)

    def worth(self, critic: EncodedCritics, obs, trajectory) -> Array:
        """Returns min_i Q_i(s, tau) as a scalar, by the weights of the reward."""
        return self.lowest(critic(obs, trajectory)) @ self.weights

    def error_loss(self, hp, error: Array) -> Array:
        """Returns the loss of every error."""
        return error**2 if self.td_loss == "squared" else huber(error, hp.huber_delta)

    def by_critic(self, target, error: Float[Array, "critics l b d"], valid) -> Metrics:
        """Returns values, errors and explained variances, by critic and reward dimension."""
        average = lambda x: mean(x.reshape(-1, x.shape[-1]).T, valid.reshape(1, -1))
        metrics = {} if self.spec.reward_dim is None else {"return": average(target)}
        for i, e in enumerate(error, 1):
            metrics[f"q_value_{i}"] = average(target + e)
            metrics[f"td_error_{i}"] = average(jnp.abs(e))
            metrics[f"explained_variance_{i}"] = explained_variance(target, target + e, valid)
        names = lambda name: [f"{name}/{d}" for d in self.spec.rewards] or [name]
        return {n: x for name, xs in metrics.items() for n, x in zip(names(name), xs, strict=True)}

    def alpha(self, state: State) -> Float[Array, "2"]:
        """Returns the temperatures of the switch and of the proposal."""
        return alpha_of("log", state.temperature, None)

    def log_beta(self, state: State, q0, q1) -> Float[Array, "... 2"]:
        """Returns log beta(b | s, tau0, tau1): a softmax of both values at the switch's alpha."""
        advantage = q1 - q0
        if self.advantage_clip is not None:
            advantage = jnp.clip(advantage, *self.advantage_clip)
        # No difference of large numbers, which the compiler may round once where it seems twice.
        odds = advantage / jnp.maximum(self.alpha(state)[0], 1e-10)
        return nn.log_sigmoid(jnp.stack([-odds, odds], -1))

    def begins(self, repeats) -> Array:
        """Tells where a trajectory must be new, since there is none to continue."""
        return (repeats == 0) & (self.first == "new")

    def backup(self, state: State, hp, rows: Row, switches: Array, value: Array):
        """Returns targets [n_step, batch, d] of rows but the last, and which end at a time limit.

        Rewards are summed up to a row that stops the sum, whose value completes it. `switches`
        are drawn from the present policy and `value` is V, both [n_step, batch, ...] of the rows
        that actions led to.
        """
        arrived = jax.tree.map(lambda x: x[1:], rows)
        stop = {
            "compare-through": arrived.final | arrived.extra.switch | switches,
            "one-step": jnp.ones_like(switches),
            "multi-step": arrived.final,
        }[self.returns]
        stop = stop.at[-1].set(True)
        reward = self.scaled(state, hp, arrived.reward)
        terminated = arrived.terminated & (not self.ignore_done)
        gamma = hp.gamma if self.gammas is None else jnp.asarray(self.gammas, jnp.float32)[None]

        def backward(later, row):
            reward, terminated, truncated, stop, value = row
            ahead, cut = where(stop, (value, truncated), later)
            target = reward + gamma * where(terminated, jnp.zeros_like(ahead), ahead)
            return (target, cut), (target, cut)

        steps = (reward, terminated, arrived.truncated.astype(jnp.float32), stop, value)
        start = jax.tree.map(jnp.zeros_like, (value[-1], steps[2][-1]))
        return jax.lax.scan(backward, start, steps, reverse=True, unroll=True)[1]

    def scaled(self, state: State, hp, reward) -> Float[Array, "... d"]:
        """Returns rewards as critics learn from them: normalised, clipped and scaled."""
        reward = reward.reshape(*reward.shape[:2], -1)
        stats = state.reward_stats
        if stats is not None:
            mean, std = (
                x[None, None] for x in (stats.mean, jnp.sqrt(jnp.clip(stats.var, 1e-6, 1e6)))
            )
            reward = jnp.clip((reward - mean) * (1.0 / std), -hp.reward_clip, hp.reward_clip)
        return hp.reward_scale * reward

    def target_entropies(self, hp) -> Float[Array, "2"]:
        """Returns the target entropies of the switch and of the proposal."""
        switch, action = hp.target_switch_entropy, hp.target_entropy
        if self.min_prob is not None:
            switch, action = switch_entropy(self.min_prob[0]), action_entropy(self.min_prob[-1])
        return jnp.stack([jnp.asarray(x, jnp.float32) for x in (switch, action * self.box.size)])


def switch_entropy(p: float) -> float:
    """Returns the entropy of a Bernoulli variable with probability p."""
    return -p * math.log(p) - (1 - p) * math.log(1 - p)


def action_entropy(p: float) -> float:
    """Returns the entropy of a uniform distribution over a fraction p of the range [-1, 1]."""
    return math.log(2 * p)
