"""A finished or stopped run: its metrics, its policies, and their evaluation."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis import hyper
from thespis.core import Box
from thespis.errors import ThespisError, or_all
from thespis.evaluate import Evaluator
from thespis.runs import checkpoint, metrics
from thespis.runs.directory import find, read_json
from thespis.runs.trainer import build, read_config


class Run:
    """The folder of a run, opened for reading. `env` stands in for one that has no name."""

    def __init__(self, path: Path | str, env=None):
        self.path = find(path)
        self.config, self.saved = read_config(self.path)
        if env is None and self.saved.get("env_given"):
            raise ThespisError(
                f"{self.path} was trained on {self.config.env}, an environment given as an object: "
                "pass it as env"
            )
        self.env = env

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def status(self) -> dict[str, Any]:
        return read_json(self.path / "status.json")

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """Columns of metrics.csv, NaN where there is no value."""
        return metrics.read(self.path / "metrics.csv")

    @cached_property
    def parts(self):
        """(loop, environment of evaluations)."""
        return build(self.config, self.env)

    # --- policies ---------------------------------------------------------------------------

    def member(self, which: int | str = "best") -> int:
        """A member's number: given, or the one with the best evaluation."""
        members = len(self.config.seeds)
        if which == "best":
            best = checkpoint.latest(self.path / "best")
            reward = checkpoint.manifest(best[0])["info"]["reward"] if best else [0.0]
            return int(np.argmax(reward))
        if not str(which).isdigit() or int(which) >= members:
            raise ThespisError(
                f"member {which!r}: {self.path} has members 0 to {members - 1}, or best"
            )
        return int(which)

    def state(self, which: str = "last"):
        """The algorithm's state of all members: of the newest checkpoint, or of the best evaluation."""
        loop, _ = self.parts
        hps = hyper.fill(self.config.Algorithm.Hyper, self.config.hp, len(self.config.seeds))
        seeds = jnp.asarray(self.config.seeds, jnp.int32)
        template = jax.eval_shape(jax.vmap(loop.algo.init), loop.keys(seeds, 0, 0), hps)
        folder = self.path / ("checkpoints" if which == "last" else "best")
        _, found = checkpoint.load_newest(folder, {"state": template}, warn=print)
        return jax.tree.map(jnp.array, found["state"]), hps

    def policy(
        self, member: int | str = "best", which: str = "last", stochastic: bool = False
    ) -> Policy:
        """One member's policy, in the environment's own units."""
        state, hps = self.state(which)
        pick = lambda tree: jax.tree.map(lambda x: x[self.member(member)], tree)
        return Policy(self.parts[0].algo, pick(state), pick(hps), stochastic)

    def evaluate(
        self,
        episodes: int = 100,
        member: int | str | None = None,
        which: str = "last",
        seed: int = 0,
    ) -> dict[str, Any]:
        """Greedy episodes in new environments: mean_reward, std_reward, returns, lengths.

        Without a member, all of them: the lists are then one per member.
        """
        loop, eval_env = self.parts
        state, hps = self.state(which)
        seeds = jnp.asarray(self.config.seeds, jnp.int32)
        returns, lengths = Evaluator(loop, eval_env, episodes)(state, hps, seeds, 2**30 + seed)
        chosen = slice(None)
        if member is not None or len(returns) == 1:
            chosen = self.member(0 if member is None else member)
        returns, lengths = returns[chosen], lengths[chosen]
        return {
            "mean_reward": float(returns.mean()),
            "std_reward": float(returns.std()),
            "returns": returns.tolist(),
            "lengths": lengths.tolist(),
        }


class Policy:
    """Acts on one observation, or on a batch of them; remembers what its algorithm must."""

    def __init__(self, algo, state, hp, stochastic: bool = False):
        self.algo, self.state, self.hp = algo, state, hp
        self.mode = "explore" if stochastic else "greedy"
        self.jitted = jax.jit(self._act)
        self.reset()

    def reset(self, seed: int = 0) -> None:
        """A new episode."""
        self.memory, self.time, self.seed = None, 0, seed

    def __call__(self, obs) -> np.ndarray:
        """The action, in the environment's own units and shape."""
        spec = self.algo.spec
        obs = jax.tree.map(lambda s, x: np.asarray(x, s.dtype), spec.obs, obs)
        first, shape = jax.tree.leaves(obs)[0], jax.tree.leaves(spec.obs)[0].shape
        alone = first.ndim == len(shape)
        action = self.respond(jax.tree.map(lambda x: x[None], obs) if alone else obs)
        if isinstance(spec.action, Box):
            low, high = (
                np.reshape(x, spec.action.shape) for x in (spec.action.low, spec.action.high)
            )
            unit = np.clip(action, -1, 1).reshape(-1, *spec.action.shape)
            action = (low + 0.5 * (unit + 1) * (high - low)).astype(np.float32)
        return action[0] if alone else action

    def respond(self, obs) -> np.ndarray:
        """The algorithm's own actions [n, ...] on a batch of observations."""
        action, self.memory = self.jitted(self.memory, obs, self.seed, self.time)
        self.time += 1
        return np.asarray(action)

    def _act(self, memory, obs, seed, time):
        k_act, k_memory = jax.random.split(jax.random.fold_in(jax.random.key(seed), time))
        n = jax.tree.leaves(obs)[0].shape[0]
        memory = self.algo.memory(k_memory, n) if memory is None else memory
        return self.algo.act(self.state, self.hp, memory, obs, k_act, time, self.mode)[:2]


# --- parts of another run -------------------------------------------------------------------


def transplant(state, source: str):
    """`state` [members, ...] with parts of another run's: RUN, or RUN:PART[,PART]."""
    path, _, wanted = source.partition(":")
    donor, _ = Run(path).state()
    donor = {n: x for n, x in names(donor).items()}
    own = names(state)
    if wanted:
        for part in wanted.split(","):
            if not any(inside(n, part) for n in donor):
                tops = sorted({n.split(".")[0] for n in donor})
                raise ThespisError(f"init_from: {path} has no part {part!r}{or_all(part, tops)}")
        donor = {n: x for n, x in donor.items() if any(inside(n, p) for p in wanted.split(","))}
    best = Run(path).member("best")
    for name, x in donor.items():
        x = (
            x
            if x.shape == own.get(name, x).shape
            else jnp.broadcast_to(x[best], (len_(state), *x.shape[1:]))
        )
        if name not in own or own[name].shape != x.shape or own[name].dtype != x.dtype:
            here = f"{own[name].dtype}{list(own[name].shape[1:])}" if name in own else "nothing"
            raise ThespisError(
                f"init_from: {name} of {path} is {x.dtype}{list(x.shape[1:])}, this run has {here}: "
                "choose parts that fit, such as RUN:actor"
            )
        own[name] = jnp.array(x)
    return jax.tree.unflatten(jax.tree.structure(state), list(own.values()))


def names(tree) -> dict[str, Any]:
    path = lambda keys: jax.tree_util.keystr(keys, simple=True, separator=".")
    return {path(keys): leaf for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def inside(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.")


def len_(state) -> int:
    return jax.tree.leaves(state)[0].shape[0]
