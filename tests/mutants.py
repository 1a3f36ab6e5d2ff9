"""Faults of one line, each of which some test must notice: `make mutants`.

Every fault is put into a copy of the source in a temporary folder, one at a time, and the tests
that should notice it run there until the first fails. What survives is printed at the end: a line
of code that could be wrong without anybody knowing. `make mutants ARGS="-k td3"` tries those alone
in whose file or text that occurs; tests/test_mutants.py checks that all of them still apply.
"""

# ruff: noqa: E501 (lines of code, as they stand in their files)

from __future__ import annotations

import argparse
import itertools
import os
import queue
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src/thespis")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "mkdocs.yml")
COPIED = ("src", "tests", "docs", "examples", "pyproject.toml", *PAGES)
LONGEST = 1800  # seconds: a fault may also keep a test from ending


@dataclass(frozen=True)
class Mutant:
    """`old`, which occurs once in the file, becomes `new`; `tests` are arguments of pytest."""

    file: str
    old: str
    new: str
    tests: str
    equivalent: str = ""
    """Why no test can notice it: then it is not tried."""

    @property
    def line(self) -> str:
        """What differs, in one line."""
        pairs = zip(self.old.splitlines(), self.new.splitlines(), strict=True)
        old, new = next((a.strip(), b.strip()) for a, b in pairs if a != b)
        return f"{self.file}: {old}  ->  {new}"


# File, the tests that should notice, and {what stands there: what is tried instead}.
# fmt: off
NOTICED: list[tuple[str, str, dict[str, str]]] = [
    # --- the loop ---
    ("engine/loop.py", "tests/engine/test_loop.py tests/engine/test_streams.py -k 'stream or drawn_for or updates_are_told'", {
        "step = clock.updates + i\n                beta":
            "step = clock.updates\n                beta",
        "step = clock.updates + i\n                state":
            "step = clock.updates\n                state",
        "random.fold_in(key, Use.STEP)":
            "random.fold_in(key, Use.ACT)",
        "random.fold_in(random.fold_in(key, Use.SAMPLE), i)":
            "random.fold_in(random.fold_in(key, Use.UPDATE), i)",
        "random.fold_in(random.fold_in(key, Use.UPDATE), i)":
            "random.fold_in(key, Use.UPDATE)",
    }),
    ("engine/streams.py", "tests/engine/test_streams.py -k stream", {
        "random.fold_in(random.fold_in(random.key(seed), int(stream)), time)":
            "random.fold_in(random.key(seed), time)",
    }),
    ("engine/loop.py", "tests/engine/test_loop.py -k 'rows or memory or statistics or transitions or observed'", {
        "rows = clock.iteration * self.envs":
            "rows = clock.iteration",
        "memory = where(actors.begin, fresh, actors.memory)":
            "memory = actors.memory",
        "begin=row.final,":
            "begin=row.terminated,",
        "transitions=x.actors.transitions + lived":
            "transitions=x.actors.transitions + 1",
        "jnp.where(begin, 0, x.actors.ep_length) + lived":
            "x.actors.ep_length + lived",
        "state = self.algo.observe(state, row)":
            "state = state",
    }),
    ("engine/loop.py", "tests/engine/test_loop.py -k 'ratio or clock or debt or priorities'", {
        "clock.remainder + part.numerator >= part.denominator":
            "clock.remainder + part.numerator > part.denominator",
        "total % part.denominator])":
            "total])",
        "jnp.where(priorities >= 0, batches.drawn.row, -1)":
            "batches.drawn.row",
    }),
    ("engine/metric_sums.py", "tests/engine/test_metric_sums.py -k fault", {
        "new = flags.any(0) & (self.fault[0] < 0)":
            "new = flags.any(0)",
        "jnp.argmax(obs | reward, 1)":
            "jnp.argmax(obs, 1)",
    }),
    ("engine/host_driver.py", "tests/engine/test_host_driver.py -k stop", {
        "set(~replay.rows.terminated[newest])":
            "set(True)",
        "self.open(learner.clock.now)":
            "self.open(0)",
        "begin = jnp.ones_like(learner.actors.begin)":
            "begin = learner.actors.begin",
    }),
    # --- the replay and priorities ---
    ("replay/ring.py", "tests/replay/test_ring.py -k 'rows or row or walk or end or often or drawn or nan'", {
        "jnp.where(self.size == self.capacity, self.head, 0)":
            "self.head",
        "jnp.minimum(self.size + 1, self.capacity)":
            "self.size + 1",
        "return lost, self.ring.size - length + 1 - lost":
            "return lost, self.ring.size - length - lost",
        "jnp.cumprod(jnp.concatenate([ones, going[1:-1]]), 0)":
            "jnp.concatenate([ones, going[1:-1]])",
        "valid=going[0] * stored.astype(jnp.float32)":
            "valid=stored.astype(jnp.float32)",
        "(self.ring.size > needed) & (weight > 0)":
            "(self.ring.size >= needed) & (weight > 0)",
        "start.later(steps.astype(jnp.int32))":
            "start.later(jnp.full(batch, n))",
        "truncated=(last * truncated[1:]).sum(0)":
            "truncated=truncated[-1]",
        "member, env = jnp.divmod(":
            "env, member = jnp.divmod(",
    }),
    ("replay/ring.py", "tests/replay/test_ring.py -k 'spread or stacks'", {
        "lost = jnp.where(full, self.frames - 1, 0)":
            "lost = jnp.where(full, 0, 0)",
        "i % self.envs)\n            start":
            "0 * i)\n            start",
    }),
    ("replay/ring.py", "tests/algos/test_frame_stack.py tests/replay/test_priorities.py -k 'by_hand or windows or learned_from or legal'", {
        "((before.time >= 0) & ~ended)":
            "(before.time >= 0)",
        "time = index.time[None] - jnp.stack(steps_back[::-1])":
            "time = index.time[None] - jnp.stack(steps_back)",
        "first = priorities.written - self.ring.size":
            "first = 0 * priorities.written",
    }),
    ("replay/priorities.py", "tests/replay/test_priorities.py -k 'not rounding and not logarithm'", {
        "else new.uses.at[head].set(0)":
            "else new.uses",
        "((self.highest[0] + EPSILON) ** alpha)":
            "((1.0 + 0.0 * self.highest[0]) ** alpha)",
        "(drawn.row >= 0) & (drawn.row > self.written - 1 - capacity)":
            "(drawn.row >= 0)",
        "** beta, 0.0)":
            "** 1.0, 0.0)",
        "uses[slot, member, drawn.env] < self.rule.max_use":
            "uses[slot, member, drawn.env] <= self.rule.max_use",
        "(rule.max_age or capacity, capacity - rule.behind)":
            "(rule.max_age or capacity, capacity)",
    }),
    # --- populations and tuners ---
    ("engine/population.py", "tests/engine/test_population.py -k 'round or copy or sick or fresh or life'", {
        "population_key(p.seeds, Stream.EXCHANGE, x.clock.iteration)":
            "population_key(p.seeds, Stream.EXCHANGE)",
        "jnp.where(replaced(parents), 0, p.age)":
            "p.age",
        "adopts = adopts | (new & sick)":
            "adopts = adopts",
        "opt_state = where(new, fresh, opt_state)":
            "opt_state = fresh",
        "(who[:, None] & ~rows.terminated[newest])":
            "who[:, None]",
        "begin=learner.actors.begin | who[:, None]":
            "begin=learner.actors.begin",
    }),
    ("tuning/base.py", "tests/tuning/test_base.py tests/tuning/test_pbt.py -k 'broken or worst or pool or decides or begin or tuned'", {
        "jnp.where(finite, mean, -jnp.inf)":
            "jnp.where(finite, mean, jnp.inf)",
        "not known[n].initial]":
            "known[n]]",
    }),
    ("tuning/pbt.py", "tests/tuning/test_pbt.py -k 'young or broken or welch or chance or differ or coordinates or mixed or counts or spread or only_copies'", {
        "(rank >= rank.size - replaced) & (age >= self.min_age)":
            "(rank >= rank.size - replaced)",
        "copies(key, out | ~finite,":
            "copies(key, out,",
        "(gain > 0) & (p < significance)":
            "p < significance",
        "t2 = n * gain**2":
            "t2 = gain**2",
        "* (0.5 + power)":
            "* 1.0",
    }),
    ("tuning/pb2.py", "tests/tuning/test_pb2.py", {
        "last=score[parents]":
            "last=score",
        "gp.posterior(both, unseen(points[i]), entry)":
            "gp.posterior(past, unseen(points[i]), entry)",
    }),
    ("tuning/gp.py", "tests/tuning/test_gp.py", {
        "(1 - drift) ** (interval / 2)":
            "(1 - drift) ** interval",
        "jnp.where(data.known, noise + 1e-4, 1.0)":
            "noise + 1e-4",
    }),
    ("tuning/multi_frequency.py", "tests/tuning/test_multi_frequency.py -k 'not long_run'", {
        "(memory.round % period == 0) & (age":
            "(age",
        "period[migrant] > period, period[migrant] < period":
            "period[migrant] < period, period[migrant] > period",
    }),
    ("tuning/controls.py", "tests/tuning/test_controls.py -k 'random_search'", {
        "where(replaced(parents), memory, new, hps)":
            "hps",
    }),
    # --- small things ---
    ("nn/normalization.py", "tests/nn/test_normalization.py", {
        "delta**2 * n * (1 - share)":
            "delta**2 * n",
        "jnp.minimum(self.count + n.astype(jnp.int32), MOST)":
            "self.count + n.astype(jnp.int32)",
        "at_least_one(count + self.prior)":
            "at_least_one(count)",
        "jnp.clip(var, floor, 1e6)":
            "jnp.clip(var, floor, None)",
    }),
    ("nn/train_state.py", "tests/nn/test_train_state.py", {
        "optax.scale_by_adam(self.b1, self.b2, self.eps)":
            "optax.scale_by_adam(self.b2, self.b1, self.eps)",
        "lambda p, d: p - lr * d":
            "lambda p, d: p - d",
        "TrainState(project(params), opt_state, self.optimizer), out":
            "TrainState(project(params), self.opt_state, self.optimizer), out",
        "return cls(params, optimizer.transform().init(params), optimizer)":
            "return cls(params, optimizer.transform().init(params))",
    }),
    ("nn/distributions.py", "tests/nn/test_distributions.py", {
        "jnp.clip(scale, low, high)":
            "scale",
        "- self.log_std - 0.5 * math.log(2 * math.pi)":
            "- 0.5 * math.log(2 * math.pi)",
        "log_p = log_normal - log_det":
            "log_p = log_normal",
        "jnp.where(self.legal, jnp.exp(self.log_p), 0.0)":
            "jnp.exp(self.log_p)",
        "jnp.where(self.legal, values, 0.0)":
            "values",
        "random.categorical(key, jnp.where(self.legal, self.logits, -jnp.inf))":
            "random.categorical(key, self.logits)",
        "nn.log_softmax(self.logits) + log_normal":
            "self.logits + log_normal",
        "std = std + nn.softplus(rest[0])":
            "std = nn.softplus(rest[0])",
    }),
    ("core.py", "tests/test_core.py", {
        "jnp.maximum(valid.sum(-1), 1.0)":
            "valid.shape[-1]",
        "t + tau * (o - t)":
            "o + tau * (t - o)",
    }),
    ("engine/rollout.py", "tests/engine/test_rollout.py tests/engine/test_evaluation.py", {
        "memory = where(begin, algo.memory(k_fresh, n), memory)":
            "memory = memory",
    }),
    ("engine/evaluation.py", "tests/engine/test_evaluation.py", {
        "jnp.cumsum(final, 0) - final.astype(int) > 0":
            "jnp.cumsum(final, 0) > 0",
        "first_episode(rows.final).at[0].set(False)":
            "first_episode(rows.final)",
        "total[begin] = 0":
            "total[begin] += 0",
        "episode = w + done[m, w] * width":
            "episode = w * share[w] + done[m, w]",
    }),
    # --- algorithms ---
    ("nn/heads.py", "tests/nn/test_heads.py tests/algos/test_sac.py tests/algos/test_td3.py -k 'numpy or smallest'", {
        "return smallest(out)":
            "return out.mean(0)",
        "(b < a) | jnp.isnan(b)":
            "b < a",
        "reward + discount * (value if bonus is None else value + bonus)":
            "reward + discount * value",
    }),
    ("nn/networks.py", "tests/algos/test_seams.py -k 'numpy or key or draw'", {
        "activate = ACTIVATIONS[self.network.activation]":
            "activate = nn.relu",
        "random.fold_in(key, i) if d else None":
            "key if d else None",
    }),
    ("nn/networks.py", "tests/nn/test_norms.py tests/nn/test_networks.py tests/algos/test_switches.py tests/algos/test_critic_learning.py -k 'numpy or fold or subset or length or share'", {
        "return norms[i - 1] if i > 0 else before, None":
            "return before, norms[i] if i < last else None",
        "x = x + (change if self.network.body":
            "x = (change if self.network.body",
        "else activate(change))":
            "else change)",
        "jnp.where(mask, x / keep, 0.0)":
            "jnp.where(mask, x, 0.0)",
        "shift if bias is None else bias * factor + shift":
            "shift if bias is None else bias + shift",
        "moved if bias is None else bias + moved":
            "bias",
        "random.permutation(key, len(self.networks))[:n]":
            "jnp.arange(len(self.networks))[:n]",
        "output = unit_columns(output)":
            "output = output",
        'if self.network.unit != "all":':
            'if self.network.unit == "weights":',
    }),
    ("nn/norms.py", "tests/nn/test_norms.py tests/algos/test_switches.py -k 'not exact'", {
        "shift = shift - (mean - centre) * factor":
            "shift = shift",
        "weight = weight * (1.0 / jnp.maximum(weight.sum(), 1.0))":
            "weight = jnp.ones_like(weight) / weight.size",
        "rows = jnp.where(weight[:, None] > 0, rows, 0.0)":
            "rows = rows",
        "self.momentum * old + (1 - self.momentum) * new":
            "self.momentum * new + (1 - self.momentum) * old",
        "late = self.updates >= (self.renorm or 0)":
            "late = self.updates < (self.renorm or 0)",
        "updates=self.updates + 1":
            "updates=self.updates",
        "change - (gradient @ weights)[..., None]":
            "change",
        "normal * (along_normal @ weights)[..., None]":
            "0.0",
    }),
    ("nn/heads.py", "tests/nn/test_heads.py", {
        "p * (1 - share)":
            "p * share",
        "jnp.maximum(0.0, 1.0 - jnp.abs(y - atoms) / self.spacing)":
            "jnp.maximum(0.0, 1.0 - jnp.abs(y - atoms))",
        "return mass * (1.0 / mass.sum(-1, keepdims=True))":
            "return mass",
        "// run % 2 == 0)":
            "// run % 2 == 1)",
        "constant_values=jnp.inf":
            "constant_values=0",
    }),
    ("nn/losses.py", "tests/nn/test_losses.py", {
        "jnp.where(u < 0, 1.0 - tau, tau) * clipped":
            "jnp.where(u < 0, tau, 1.0 - tau) * clipped",
        "slope * (u - 0.5 * clipped)":
            "slope * u",
    }),
    ("xla/fast_random.py", "tests/xla/test_fast_random.py", {
        "(spread >> 16)) >> 16":
            "0) >> 16",
        "(above(y) >> 4)":
            "(above(x) >> 4)",
        "(128 - below) * every_byte":
            "(127 - below) * every_byte",
    }),
    ("algos/critic_learning.py", "tests/algos/test_switches.py -k numpy", {
        "valid = jnp.concatenate([b.valid, b.valid])":
            "valid = jnp.ones(2 * len(b.valid))",
        "now[1]), stop_gradient(next_out), new":
            "now[1]), next_out, new",
        "due = (step + 1) % self.target_every == 0":
            "due = step % self.target_every == 0",
    }),
    ("algos/optimization.py", "tests/algos/test_switches.py tests/algos/test_optimization.py tests/algos/test_rewards.py -k 'numpy or scaled or rates or decays'", {
        "factor = hp.lr_end + (1.0 - hp.lr_end) * left":
            "factor = left",
        'hp.weight_decay if self.optimizer == "adamw"':
            'hp.weight_decay if self.optimizer == "adam"',
    }),
    ("algos/actor_critic.py", "tests/algos/test_switches.py -k reset", {
        'if name.endswith("stats")':
            'if name == "stats"',
    }),
    ("algos/critic_learning.py", "tests/algos/test_sac.py -k numpy", {
        "b.valid * (1.0 - b.truncated) if self.drop_truncated":
            "b.valid if self.drop_truncated",
        "mean(b.weight[None] * losses, valid[None])":
            "mean(losses, valid[None])",
        "return out, target_critic(*next_inputs, key=k_then), critic":
            "return out, critic(*next_inputs, key=k_then), critic",
    }),
    ("algos/actor_critic_networks.py", "tests/algos/test_sac.py tests/algos/test_actor_critic_networks.py -k 'numpy or normalised or statistics'", {
        "else normalization.normalise(state.stats, obs)":
            "else obs",
    }),
    ("algos/actor_critic.py", "tests/algos/test_sac.py tests/engine/test_loop.py -k 'numpy or number_of_prioritised'", {
        "hp.priority_beta + (1.0 - hp.priority_beta) * done":
            "hp.priority_beta",
    }),
    ("algos/sac.py", "tests/algos/test_sac.py tests/algos/test_soft_actor_critic.py tests/algos/test_seams.py -k 'numpy or different_keys or follow or starts or less_often'", {
        "self.learn_critics(state, state.target, hp":
            "self.learn_critics(state, state.critic.params, hp",
        "alpha=alpha, key=k_now, step=step":
            "alpha=alpha, key=k_next, step=step",
        "else self.actor_every - 1":
            "else 0",
        "critic if self.order == \"sequential\" else state.critic":
            "state.critic if self.order == \"sequential\" else critic",
        "self.actor_value(critic, obs, action, k_critic) - alpha * log_p, log_p":
            "self.actor_value(critic, obs, action, k_critic), log_p",
    }),
    ("algos/temperature.py", "tests/algos/test_temperature.py tests/algos/test_soft_actor_critic.py tests/algos/test_sac.py -k 'temperature or numpy or zero or raises'", {
        "jnp.maximum(temperature.params, 0.0)":
            "temperature.params",
    }),
    ("algos/td7.py", "tests/algos/test_td7.py -k 'numpy or reward or decay'", {
        "return out, target_critic.bounded(next_out), new":
            "return out, next_out, new",
        "jnp.maximum(jnp.abs(result.error).max(0), 1.0)":
            "jnp.abs(result.error).max(0)",
        "            old.embedding,":
            "            trained.params.embedding,",
        "due = (step + 1) % self.target_every == 0":
            "due = step % self.target_every == 0",
        "predicted - stop_gradient(encoder.of_state(next_obs))":
            "predicted - encoder.of_state(next_obs)",
        "return self.if_due(step, actor, target_actor)":
            "return actor",
    }),
    ("nn/embeddings.py", "tests/nn/test_embeddings.py tests/algos/test_td7.py", {
        "embedding.of_pair(z, action), z], -1)":
            "z, embedding.of_pair(z, action)], -1)",
        "jnp.concatenate([x, self.embedding.frozen().of_state(x)], -1)":
            "jnp.concatenate([x, self.embedding.of_state(x)], -1)",
        "jnp.where(known, jnp.clip(value, self.low, self.high), 0.0)":
            "jnp.clip(value, self.low, self.high)",
    }),
    ("algos/td3.py", "tests/algos/test_td3.py tests/algos/test_actor_critic_networks.py -k 'numpy or delay or noise or encoder'", {
        "self.with_encoder(state.target_actor, encoding)":
            "self.with_encoder(state.target_actor, state.critic.params)",
        "noise = jnp.clip(noise, -hp.noise_clip, hp.noise_clip)":
            "noise = noise",
        "jnp.clip(jnp.tanh(target_actor(next_obs)) + noise, -1, 1)":
            "jnp.tanh(target_actor(next_obs)) + noise",
        "due = (step + 1) % self.delay == 0":
            "due = step % self.delay == 0",
        "self.update_target_actor(hp, target_actor, actor.params, step)":
            "self.update_target_actor(hp, target_actor, state.actor.params, step)",
        'critic_for_actor = critic.params if self.order == "sequential"':
            'critic_for_actor = state.critic.params if self.order == "sequential"',
        "jnp.clip(action + noise * draw, -1, 1)":
            "action + noise * draw",
    }),
    ("algos/discrete_sac.py", "tests/algos/test_discrete_sac.py -k 'numpy or counts_legal'", {
        "self.reduced(critic.params(obs, ":
            "self.reduced(state.critic.params(obs, ",
        "jnp.maximum(losses, (clipped - target[None]) ** 2)":
            "jnp.minimum(losses, (clipped - target[None]) ** 2)",
        "n = policy.legal.sum(-1).astype(jnp.float32)":
            "n = jnp.ones_like(policy.legal).sum(-1).astype(jnp.float32)",
    }),
    ("algos/epsilon.py", "tests/algos/test_epsilon.py", {
        "policy.logits.shape[:-1]) < chance":
            "(1,)) < chance",
        "0.0, policy.logits), policy.legal)":
            "0.0, policy.logits), policy.legal | True)",
    }),
    ("algos/sqil.py", "tests/algos/test_sqil.py -k 'batches or rewards or objective or clones or no_priority'", {
        "drawn=jax.tree.map(lambda x: -jnp.ones_like(x), agent.drawn)":
            "drawn=jax.tree.map(lambda x: jnp.zeros_like(x), agent.drawn)",
        "b.terminated * hp.gamma**b.steps * largest_return(hp)":
            "b.terminated * largest_return(hp)",
        "steps=jnp.full_like(b.steps, ENDLESS)":
            "steps=b.steps",
        "step < self.bc_steps, learn":
            "step <= self.bc_steps, learn",
    }),
    ("algos/imitators.py", "tests/algos/test_imitators.py", {
        "jnp.clip(value, -bound, bound), None":
            "value, None",
        "mean(value, valid[None]) - mean(q, demo[None])":
            "mean(value, valid[None]) - mean(q, valid[None])",
    }),
    ("algos/taac.py", "tests/algos/test_taac.py tests/algos/test_action_repeats.py -k 'numpy or walk or limits or follows or period or repetition or switch or pessimistic or weight_of or warm_up or carried or counts'", {
        "jnp.where(begins, 1.0, jnp.exp(log_beta[..., 1]))":
            "jnp.exp(log_beta[..., 1])",
        "arrived.final | arrived.extra.switch | switches":
            "arrived.final | switches",
        "stop = stop.at[-1].set(True)":
            "stop = stop",
        "terminated = arrived.terminated & (not self.ignore_done)":
            "terminated = arrived.final & (not self.ignore_done)",
        "average(-(beta * log_beta).sum(-1), chose)":
            "average(-(beta * log_beta).sum(-1), acted)",
        "due = (step + 1) % self.target_period == 0":
            "due = step % self.target_period == 0",
        "log_beta = stop_gradient(self.log_beta(state, q0, q1))":
            "log_beta = self.log_beta(state, q0, q1)",
    }),
    ("algos/action_repeats.py", "tests/algos/test_action_repeats.py tests/algos/test_taac.py -k 'repetition or counts or counted'", {
        "chose = ~rows.final & ~begins":
            "chose = ~rows.final",
    }),
    ("nn/losses.py", "tests/algos/test_taac.py -k 'numpy'", {
        "jnp.where(size <= delta, 0.5 * error**2, delta * (size - 0.5 * delta))":
            "jnp.where(size <= delta, 0.5 * error**2, delta * size)",
        "1.0 - variance(target - prediction)":
            "1.0 - variance(prediction)",
    }),
    ("algos/trajectories.py", "tests/algos/test_trajectories.py", {
        "jnp.concatenate([proposal, (proposal - a) / 2], -1)":
            "jnp.concatenate([proposal, proposal - a], -1)",
        "v = bounded(v + 2 * u)":
            "v = bounded(v + u)",
    }),
    ("algos/dads.py", "tests/algos/test_dads.py tests/algos/test_skill_dynamics.py -k 'numpy or reward or ends or statistics or kth or recent or density or assignment or skill_lasts or key'", {
        "jnp.where(policy.terminated > 0, 0.0, intrinsic)":
            "intrinsic",
        "return batch.valid * (1.0 - batch.terminated)":
            "return batch.valid",
        'net = state.dynamics.params if self.order == "sequential" else old':
            "net = old",
        "jnp.clip(log_p - extra.log_p, -bound, bound)":
            "log_p - extra.log_p",
        "max(1, self.recent_steps // replay.ring.rows.reward.shape[2])":
            "self.recent_steps",
    }),
    ("algos/skill_dynamics.py", "tests/algos/test_dads.py tests/algos/test_skill_dynamics.py -k 'numpy or reward'", {
        "itself = 0 if one_hot else 1":
            "itself = 0",
        "inputs = seen[:1] if seen.shape[-1] == 0 else seen":
            "inputs = seen[:1]",
        "change = state.change_stats(change, floor=1e-12)":
            "change = change",
    }),
    ("algos/skill_views.py", "tests/algos/test_dads.py tests/algos/test_skill_views.py tests/algos/test_skill_dynamics.py -k 'numpy or descriptor or coordinates or reward or refused'", {
        "if i not in hidden)":
            "if i in hidden)",
        "(separate or (part != \"\" and self.hides_coordinates))":
            "(separate or part != \"\")",
    }),
    ("algos/metra.py", "tests/algos/test_metra.py tests/algos/test_dads.py -k 'numpy or skills_are or steps'", {
        "jnp.minimum(1.0 - length, hp.slack)":
            "1.0 - length",
        "(log * room, None)":
            "(-log * room, None)",
        "(size / max(size - 1, 1))":
            "1.0",
    }),
    ("algos/smerl.py", "tests/algos/test_smerl.py", {
        "(self.count + number - 1) % EPISODES":
            "(self.count + number) % EPISODES",
        "margin * jnp.abs(top)":
            "margin * top",
    }),
    ("algos/masac.py", "tests/algos/test_masac.py tests/algos/test_multi_agent.py -k 'numpy or away or ended or shared or each_agent or illegal or present or first or independent'", {
        "team_bonus = (then.alive * bonus)":
            "team_bonus = (bonus)",
        "terminated = jnp.maximum(terminated, then.ended)":
            "terminated = terminated",
        "others = rotated(stop_gradient(present), order[:, 1:])":
            "others = rotated(present, order[:, 1:])",
        "order = (np.arange(self.agents)[:, None] + np.arange(self.agents))":
            "order = (0 * np.arange(self.agents)[:, None] + np.arange(self.agents))",
        "(1.0 - (1.0 - then.alive) * (1.0 - terminated))":
            "1.0",
    }),
    ("algos/frame_stack.py", "tests/algos/test_frame_stack.py", {
        "past = where(memory.fresh, map_frames(repeat, obs, mask=None), memory.past)":
            "past = memory.past",
        "behind=self.frames - 1":
            "behind=0",
    }),
    ("algos/held_noise.py", "tests/algos/test_held_noise.py", {
        "where(holding, self.draw, fresh)":
            "fresh",
    }),
    # --- the page ---
    ("report/serve.py", "tests/report/test_serve.py -k 'token or rebound or served'", {
        "if not hmac.compare_digest(token.encode(), self.server.token.encode()):":
            "if not hmac.compare_digest(token.encode(), token.encode()):",
        'if len(hosts) != 1 or hosts[0].partition(":")[0] not in NAMES:':
            'if len(hosts) != 1 or not hosts[0].startswith(NAMES):',
        'if (address.scheme, address.netloc, address.path) != ("", "", "/"):':
            'if (address.scheme, address.netloc) != ("", ""):',
    }),
    ("report/charts.py", "tests/report/test_charts.py", {
        "banded = iqm and not tuned":
            "banded = iqm",
    }),
    ("report/source.py", "tests/report/test_charts.py", {
        "histograms[name] = Histogram(edges, steps, counts)":
            "histograms[name] = Histogram(edges, steps, counts[::-1])",
    }),
    ("report/logged.py", "tests/report/test_logged.py", {
        "return Histogram(edges, steps, counts)":
            "return Histogram(edges, steps, counts[::-1])",
        "np.diff(at_edges, axis=1)":
            "np.diff(at_edges, axis=1)[:, ::-1]",
    }),
    # --- several machines ---
    ("cluster/slices.py", "tests/cluster/test_slices.py", {
        "(iteration // n + 1) * n":
            "iteration + n",
        "groups = -(-members // size)":
            "groups = members // size + 1",
        "of_members = lambda x: [x[m] for m in members] if one_each(x) else x":
            "of_members = lambda x: x",
    }),
    ("cluster/workers.py", "tests/cluster/test_workers.py -k groups", {
        "here[fullest] - here[target] < 2":
            "here[fullest] - here[target] < 1",
        "if left[node] - coming[node] * self.cpus >= self.cpus]":
            "if left[node] >= self.cpus]",
        "worker.announced = True":
            "worker.announced = False",
    }),
    ("cluster/transfer.py", "tests/cluster/test_transfer.py", {
        "x.at[:size, member].set(y)":
            "x.at[:size, 0].set(y)",
        "highest = [x.at[:, member].set(y)":
            "highest = [x",
    }),
    ("cluster/own_ray.py", "tests/cluster/test_own_ray.py", {
        "locks.take(handle)":
            "pass",
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})":
            "signal.pthread_sigmask(signal.SIG_BLOCK, ())",
    }),
    ("cluster/run_log.py", "tests/cluster/test_run_log.py", {
        "if reported <= step":
            "if reported",
        "new = [row for row in rows if row[:2] not in self.written]":
            "new = rows",
    }),
    ("cluster/handover.py", "tests/cluster/test_handover.py", {
        "if member not in donor.members and donor.actor is not None:":
            "if donor.actor is not None:",
        "return parent - mine.start":
            "return parent",
    }),
    ("cluster/group.py", "tests/cluster/test_group.py", {
        "same = files.read(path).decode() == self.assignment.proof":
            "same = bool(files.read(path))",
        "parents[member] = member":
            "parents[member] = 0",
    }),
    # --- sweeps ---
    ("report/sweep_results.py", "tests/report/test_sweep_results.py", {
        'names, done = choices_of(rows), [row for row in rows if row["state"] == "done"]':
            "names, done = choices_of(rows), list(rows)",
        "for k, jobs in settings.items() if len(jobs) == len(every)}":
            "for k, jobs in settings.items()}",
        "cells[i][j].append(row[\"iqm\"])":
            "cells[i][j] = [row[\"iqm\"]]",
    }),
    ("sweeps/samplers.py", "tests/sweeps/test_samplers.py", {
        "rng = np.random.default_rng([plan.sampler_seed, plan.algo.index(algo)])":
            "rng = np.random.default_rng([0, plan.algo.index(algo)])",
        "x = math.exp(coordinate) if isinstance(prior, LogUniform) else coordinate":
            "x = -coordinate if isinstance(prior, LogUniform) else coordinate",
        "        for job in self.jobs:\n            plan.check(job)":
            "        for job in self.jobs[:1]:\n            plan.check(job)",
    }),
    ("sweeps/plan.py", "tests/sweeps/test_plan.py tests/sweeps/test_samplers.py", {
        'known = plain_name(name) in ("algo", "env", "eval_env")':
            'known = name in ("algo", "env", "eval_env")',
        "if name.removeprefix(\"slurm_\") not in SUBMITTED or not fine:":
            "if not fine:",
        'options["seeds"] = list(self.seeds)':
            'options["seeds"] = list(self.seeds)[:1]',
    }),
    # --- what leads users on ---
    ("errors.py", "tests/test_errors.py -k prefix", {
        "start = len(prefix) if same else 0": "start = 0",
        "near = [part] if part in lower else difflib": "near = difflib",
    }),
    ("runs/callback_events.py", "tests/runs/test_callback_events.py -k nothing_calls", {
        "kind.on_step is not Callback.on_step and callback.every is None": "callback.every is None",
        "if name not in events and callable": "if callable",
    }),
    ("runs/directory.py", "tests/runs/test_directory.py -k typed_again", {
        'command = ["python", program] if path.suffix == ".py" else [program]': "command = [program]",
    }),
    ("report/facts.py", "tests/report/test_facts.py -k user_said", {
        "and x and KERNEL not in x]": "and x]",
        "(source.folder.name if filled else text(name))": "text(name)",
    }),
    ("cli/options.py", "tests/cli/test_options.py", {
        'if flag(option) and "=" not in option and not flag(value):': "if flag(option):",
        'values = [queue.pop(0).lower()]': 'values = [queue.pop(0)]',
    }),
]
# fmt: on

# Changes after which everything is as before, and why.
EQUIVALENT: list[tuple[str, str, str, str]] = [
    (
        "replay/ring.py",
        "terminated=(last * terminated[1:]).sum(0)",
        "terminated=(alive * terminated[1:]).sum(0)",
        "no step before the last one is terminal: the sum has the same terms",
    ),
    (
        "algos/smerl.py",
        "ended & (number > number[-1] - EPISODES)",
        "ended",
        "of episodes that fall on one slot CPUs write the last one last, as is wanted; others might not",
    ),
    (
        "nn/normalization.py",
        "delta = jnp.where(n > 0, centre - self.mean, 0.0)",
        "delta = centre - self.mean",
        "without rows all that it is multiplied by is 0; it guards means whose square overflows",
    ),
]


def every() -> list[Mutant]:
    tried = [
        Mutant(file, old, new, tests)
        for file, tests, changes in NOTICED
        for old, new in changes.items()
    ]
    return tried + [Mutant(file, old, new, "", why) for file, old, new, why in EQUIVALENT]


# --- trying them ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Copy:
    """The tree in a folder of its own, whatever happens to it there."""

    folder: Path
    moments = itertools.count(1_000_000_000)  # Python compiles anew what has another time

    @classmethod
    def of(cls, root: Path, folder: Path) -> Copy:
        leave = shutil.ignore_patterns("__pycache__", ".*")
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, folder / name, ignore=leave)
            elif (root / name).exists():
                shutil.copy(root / name, folder / name)
        return cls(folder)

    def write(self, file: str, text: str) -> None:
        path = self.folder / PACKAGE / file
        path.write_text(text)
        os.utime(path, (next(self.moments),) * 2)

    def passes(self, tests: str) -> bool:
        """Whether they pass; that none was found or collected is an error."""
        here = {"PYTHONPATH": str(self.folder / "src")}
        cache = {"JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax")} | os.environ
        command = [sys.executable, "-m", "pytest", "-x", "-q"]
        command += ["-m", "not slow and not optimised", *shlex.split(tests)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        try:
            given = {"cwd": self.folder, "env": {**cache, **here}, "timeout": LONGEST}
            ended = subprocess.run(command, check=False, **given, **pipes)
        except subprocess.TimeoutExpired:
            return False
        if ended.returncode not in (0, 1):
            raise SystemExit(f"pytest {tests} ended with {ended.returncode}:\n{ended.stdout}")
        return ended.returncode == 0

    def survives(self, mutant: Mutant) -> bool:
        path = self.folder / PACKAGE / mutant.file
        text = path.read_text()
        assert text.count(mutant.old) == 1, f"{mutant.line}: it does not apply"
        self.write(mutant.file, text.replace(mutant.old, mutant.new))
        try:
            return self.passes(mutant.tests)
        finally:
            self.write(mutant.file, text)


def survivors(root: Path, mutants: list[Mutant], workers: int) -> Iterator[tuple[Mutant, bool]]:
    """Every mutant and whether it survives, those of the same tests together.

    These must pass where nothing was changed, else whatever fails says nothing.
    """
    copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()

    def try_all(tests: str) -> list[tuple[Mutant, bool]]:
        copy = copies.get()
        try:
            if not copy.passes(tests):
                raise SystemExit(f"without any fault these fail already: {tests}")
            return [(m, copy.survives(m)) for m in mutants if m.tests == tests]
        finally:
            copies.put(copy)

    with tempfile.TemporaryDirectory(prefix="thespis-mutants-") as folder:
        for i in range(workers):
            copies.put(Copy.of(root, Path(folder) / str(i)))
        with ThreadPoolExecutor(workers) as pool:
            groups = [
                pool.submit(try_all, tests) for tests in dict.fromkeys(m.tests for m in mutants)
            ]
            for group in as_completed(groups):
                yield from group.result()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.split(":")[0])
    parser.add_argument("-k", default="", help="only those in whose file or text this occurs")
    parser.add_argument("-n", type=int, default=1, help="how many are tried at a time")
    given = parser.parse_args(argv)
    chosen = [m for m in every() if given.k in m.file or given.k in m.old]
    tried = [m for m in chosen if not m.equivalent]
    began, alive = time.monotonic(), []
    for mutant, survived in survivors(ROOT, tried, given.n):
        print(f"{'SURVIVES' if survived else 'noticed '}  {mutant.line}", flush=True)
        alive += [mutant] * survived
    minutes = (time.monotonic() - began) / 60
    for m in chosen:
        if m.equivalent:
            print(f"the same  {m.line}  ({m.equivalent})")
    print(f"{len(tried)} tried in {minutes:.0f} minutes, {len(alive)} survived")
    for mutant in alive:
        print(f"  {mutant.line}\n    pytest {mutant.tests}")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
