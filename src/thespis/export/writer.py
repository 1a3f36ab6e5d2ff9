"""Exports trained policies, as a Python file that needs only NumPy or as an ONNX model.

The algorithm's own greedy `act` is traced and written operation by operation, from the raw
observation to the action in the environment's units.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.tree_util import DictKey

from thespis import __version__, envs
from thespis.core import MASK, Box, Discrete, privileged
from thespis.engine.rollout import FrozenPolicy
from thespis.envs import gymnasium as gym
from thespis.envs.stepping import Leaf
from thespis.errors import ThespisError
from thespis.export import to_numpy, to_onnx
from thespis.export.graph import Graph, Value, named, trace
from thespis.nn import normalization
from thespis.nn.networks import dtypes, fold, is_mlp
from thespis.nn.norms import batch_norms
from thespis.runs.files import output, replacing, writing

TOLERANCE = 1e-5  # largest difference of actions in [-1, 1]
FOLDED = 1e-2  # the same with batch norms, since folded weights round otherwise
OBSERVATIONS = 1000  # on which actions are compared
EXAMPLES = 20  # observations that are saved with the policy
REASONS = {  # for which actions differ from those of training
    "bfloat16": "Training computed in bfloat16, and the files compute in float32 with the same "
    "weights",
    "folding": "Batch norms are folded into the weights",
}
BLANK = "    return {}  # an export writes the operations here\n"


def export(
    run: Any,
    folder: Path | str | None = None,
    format: str = "numpy",
    member: int | str = "best",
    which: str = "last",
) -> dict[str, Any]:
    """Exports the greedy policy of a run's member; returns the files and the largest differences.

    The default folder is `<run>/export`. Nothing is written unless the export acts like the
    trained policy on a thousand observations.
    """
    if format not in ("numpy", "onnx", "all"):
        raise ThespisError(f"format = {format}: give one of numpy, onnx, all")
    if format != "numpy":
        to_onnx.require()
    number = run.member(member, which)
    loop = run.parts[0]
    exported = Exported(loop.algo, loop.env, run.frozen(number, which))
    about = exported.about | {
        "algorithm": run.config.algo,
        "environment": envs.label(loop.env),
        "run": str(run.path),
        "member": number,
        "thespis": __version__,
    }
    place = output(run.path, folder, "export")
    errors: dict[str, float] = {}
    files: dict[str, str | bytes | dict] = {}
    if format in ("numpy", "all"):
        code, arrays = exported.numpy(about)
        errors["numpy"] = exported.compare(compiled(code, arrays), "NumPy")
        files |= {"policy.py": code, "policy.npz": arrays}
    if format in ("onnx", "all"):
        model = to_onnx.model(exported.graph, {"about": json.dumps(about)})
        errors["onnx"] = exported.compare(session(model), "ONNX")
        files["policy.onnx"] = model.SerializeToString()
    about["largest_difference"] = errors | exported.rounding()
    files |= {"policy.json": json.dumps(about, indent=2) + "\n", "README.md": readme(about, format)}
    write(place, files)
    return {"files": [str(place / name) for name in files], "largest_difference": errors}


def write(place: Path, files: dict[str, str | bytes | dict]) -> None:
    """Writes files of text, bytes or arrays to a folder."""
    with writing(place):
        place.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        with replacing(place / name) as file:
            if isinstance(content, dict):
                np.savez(file, **content)
            else:
                file.write(content.encode() if isinstance(content, str) else content)


class Exported:
    """One member's greedy policy as a graph, and the comparison with the trained policy."""

    def __init__(self, algo: Any, env: Any, policy: FrozenPolicy):
        self.trained, policy = policy, fold(policy)
        self.algo, self.env, self.policy = algo, env, policy
        key = random.key(0)
        self.memory = algo.memory(key, 1)
        hidden = privileged(algo)  # parts that only critics see are not inputs
        obs = algo.spec.obs
        obs = {k: s for k, s in obs.items() if k not in hidden} if hidden else obs
        self.obs = jax.tree.map(lambda s: jax.ShapeDtypeStruct((1, *s.shape), s.dtype), obs)
        # Key and memory are inputs at first, to find out whether the policy uses them.
        inputs = {"memory": self.memory, "obs": self.obs, "key": key}
        graph = trace(self.act, policy, inputs)
        used = {id(x) for op in graph.operations for x in op.inputs}
        read = {x.name.partition(".")[0] for x in graph.inputs if id(x) in used}
        if "key" in read:
            raise ThespisError(
                f"the greedy policy of {type(algo).__name__} is random with these options, which "
                "cannot be exported: train without them (such as epsilon_greedy = 0)"
            )
        if self.memory is not None and "memory" not in read:  # only exploration uses it
            self.memory = None
            graph = trace(self.act, policy, inputs | {"memory": None})
        values = [x for x in graph.inputs if x.name != "key"]
        self.graph = Graph(values, graph.outputs, graph.operations)

    def act(self, policy: FrozenPolicy, inputs: dict) -> dict[str, Any]:
        memory, obs, key = inputs["memory"], inputs["obs"], inputs["key"]
        action, memory, _ = policy.act(self.algo, memory, obs, key, "greedy")
        return {"action": to_env(self.algo.spec, action), "memory": memory}

    # --- inputs and outputs -----------------------------------------------------------------

    @property
    def about(self) -> dict[str, Any]:
        """The inputs, actions and memory, for users and for runner.py."""
        drawn = self.drawn()
        shape = lambda x: {"shape": list(x.shape[1:]), "dtype": np.dtype(x.dtype).name}
        return {
            "observation": pruned(encoding(self.env, self.algo.spec.obs), "obs", self.names),
            "inputs": {x.name: described(x) for x in self.graph.inputs},
            "actions": {
                name: describe_action(kind) for name, kind in kinds(self.algo.spec).items()
            },
            "memory": {
                name: shape(x)
                | {"start": np.asarray(x)[0].tolist(), "drawn_at_random": name in drawn}
                for name, x in named(self.memory)
            },
        }

    @property
    def names(self) -> set[str]:
        return {x.name for x in self.graph.inputs}

    def drawn(self) -> set[str]:
        """Returns the parts of the memory that are drawn at random for every episode."""
        graph = trace(
            lambda _, inputs: {"memory": self.algo.memory(inputs["key"], 1)},
            {},
            {"key": random.key(0)},
        )
        return {name.partition(".")[2] for name, x in graph.outputs.items() if isinstance(x, Value)}

    # --- files ------------------------------------------------------------------------------

    def numpy(self, about: dict[str, Any]) -> tuple[str, dict[str, np.ndarray]]:
        """Returns the text of policy.py and the arrays of policy.npz."""
        body, arrays = to_numpy.source(self.graph)
        before, after = (Path(__file__).parent / "runner.py").read_text("utf-8").split(BLANK)
        code = before + "".join(f"    {line}\n" for line in body.splitlines()) + after
        start = {f"memory.{name}": np.asarray(x) for name, x in named(self.memory)}
        return code, arrays | start | self.examples() | {"about": np.array(json.dumps(about))}

    def examples(self) -> dict[str, np.ndarray]:
        """Returns observations of one episode, and the actions of the trained policy."""
        obs, played = self.played
        read = [(name, x) for name, x in named({"obs": obs}) if name in self.names]
        saved = [*read, *named({"action": played["action"]})]
        return {f"example.{name}": np.asarray(x)[:EXAMPLES] for name, x in saved}

    # --- comparison -------------------------------------------------------------------------

    @cached_property
    def played(self) -> tuple[Any, dict[str, Any]]:
        """Observations, and the trained policy's outputs for them."""
        obs = self.observations(OBSERVATIONS)
        return obs, self.play(obs)

    def play(self, obs: Any, policy: FrozenPolicy | None = None) -> dict[str, Any]:
        """Returns the policy's actions and memories on observations [n, 1, ...] of one episode."""

        def act(policy, memory, now):
            obs, time = now
            key = random.fold_in(random.key(0), time)
            out = self.act(policy, {"memory": memory, "obs": obs, "key": key})
            return out["memory"], out

        rows = obs, jnp.arange(OBSERVATIONS)[: len(jax.tree.leaves(obs)[0])]
        run = jax.jit(lambda policy, memory, x: jax.lax.scan(partial(act, policy), memory, x)[1])
        return jax.tree.map(np.asarray, run(policy or self.policy, self.memory, rows))

    def observations(self, n: int) -> Any:
        """Samples observations [n, 1, ...], with the running mean and variance if there are any.

        They are those of the normalised observations, or of the batch norm of the actor's input.
        """
        rng = np.random.default_rng(0)
        stats = getattr(self.policy.state, "stats", None)

        def draw(s: Any) -> Any:
            shape = (n, *s.shape)
            if s.dtype == jnp.bool_:
                return rng.random(shape) < 0.7
            if jnp.issubdtype(s.dtype, jnp.integer):
                return rng.integers(0, 256, shape).astype(s.dtype)
            return rng.normal(size=shape).astype(s.dtype)

        obs = jax.tree.map(draw, self.obs)
        for path, x in jax.tree_util.tree_leaves_with_path(obs):
            if path[-1:] == (DictKey(MASK),):
                x[..., 0] = True  # at least one action is legal
        running = lambda x: isinstance(x, normalization.Running)
        known = jax.tree_util.tree_leaves_with_path(stats, is_leaf=running)
        moments = {path: (s.mean, s.var) for path, s in known if running(s)}
        moments = moments or self.input_moments(obs)

        def scaled(path: Any, x: Any) -> Any:
            mean, var = (np.asarray(m) for m in moments.get(path, (0.0, 1.0)))
            if mean.shape != x.shape[2:] or not jnp.issubdtype(x.dtype, jnp.floating):
                return x
            return mean + np.sqrt(var) * x

        return jax.tree_util.tree_map_with_path(scaled, obs)

    def input_moments(self, obs: Any) -> dict[Any, Any]:
        """Returns mean and variance of each leaf by the actor's input norm, if it is of them."""
        leaves = jax.tree_util.tree_leaves_with_path(obs)
        sizes = [math.prod(x.shape[2:]) for _, x in leaves]
        networks = filter(is_mlp, jax.tree.leaves(self.trained_actor, is_leaf=is_mlp))
        norm = next((x.input_norm for x in networks if x.input_norm is not None), None)
        if norm is None or norm.mean.size != sum(sizes):
            return {}
        split = lambda m: np.split(np.asarray(m), np.cumsum(sizes)[:-1])
        parts = zip(leaves, split(norm.mean), split(norm.var), strict=True)
        return {path: [m.reshape(x.shape[2:]) for m in pair] for (path, x), *pair in parts}

    @property
    def trained_actor(self) -> Any:
        """Returns the actor with its batch norms; the whole state if nothing is called so."""
        return getattr(self.trained.state, "actor", self.trained.state)

    @property
    def folds(self) -> bool:
        """Tells whether the actor has batch norms, which exports fold into its weights."""
        return bool(batch_norms(self.trained_actor))

    def compare(self, other: Callable[[dict], dict], where: str) -> float:
        """Returns the largest difference of actions (scaled to [-1, 1]) and memories."""
        obs, played = self.played
        before = lambda first, after: np.concatenate([np.asarray(first)[None], after[:-1]])
        memory = jax.tree.map(before, self.memory, played["memory"])
        inputs, expected = named({"memory": memory, "obs": obs}), named(played)
        rows = [
            other({name: x[t] for name, x in inputs if name in self.names})
            for t in range(len(inputs[-1][1]))
        ]
        got = {name: np.stack([row[name] for row in rows]) for name, _ in expected}
        return self.accept(self.errors(got, expected), where)

    def errors(self, got: dict[str, Any], expected: list) -> np.ndarray:
        """Returns the largest difference of each observation's outputs [n]."""
        half, worst = half_ranges(self.algo.spec), np.zeros(1)
        for name, x in expected:
            error = np.abs(got[name].astype(np.float64) - x.astype(np.float64))
            error = (error / half.get(name, 1.0)).reshape(len(x), -1)
            worst = np.maximum(worst, error.max(1, initial=0.0))
        return worst

    def accept(self, errors: np.ndarray, where: str) -> float:
        """Returns the largest error; refuses a policy that differs from the trained one.

        If batch norms are folded, choices of discrete actions may differ where they nearly tie: a
        hundredth of the observations.
        """
        tolerance, share = (FOLDED, 0.99) if self.folds else (TOLERANCE, 1.0)
        worst = np.quantile(errors, share)
        if not worst <= tolerance:
            raise ThespisError(
                f"the {where} policy differs from the trained one by {worst:.1e} on {OBSERVATIONS} "
                f"observations, more than {tolerance:g}: nothing is written; please report this"
            )
        return float(errors.max())

    def rounding(self) -> dict[str, float]:
        """Returns how far actions are from those of training, by the reason for that.

        Exported files compute in float32 with the same weights, even if training used half
        precision, and have batch norms folded into these.
        """
        half_precision = dtypes(self.trained) - {"float32"}
        reasons = half_precision or ({"folding"} if self.folds else set())
        if not reasons:
            return {}
        obs, exact = self.played
        trained = dict(named({"action": self.play(obs, self.trained)["action"]}))
        errors = self.errors(trained, named({"action": exact["action"]}))
        if not half_precision:
            self.accept(errors, "folded")
        return dict.fromkeys(reasons, float(errors.max()))


# --- actions --------------------------------------------------------------------------------


def kinds(spec: Any) -> dict[str, Box | Discrete]:
    """Returns the actions by the names of the outputs, one for each agent."""
    agents = spec.agents
    if not agents:
        return {"action": spec.action}
    return {f"action.{name}": kind for name, kind in zip(agents, spec.actions, strict=True)}


def to_env(spec: Any, action: Any) -> Any:
    """Returns actions [n, ...] in the environment's units; a dict for several agents."""
    actions = spec.to_env(action)
    return dict(zip(spec.agents, actions, strict=True)) if spec.agents else actions[0]


def describe_action(kind: Box | Discrete) -> dict[str, Any]:
    if isinstance(kind, Discrete):
        return {"kind": "one of", "first": kind.start, "last": kind.start + kind.n - 1}
    bounds = {"low": list(kind.low), "high": list(kind.high)}
    return {"kind": "numbers", "shape": list(kind.shape), **bounds}


def half_ranges(spec: Any) -> dict[str, Any]:
    """Returns half the ranges of actions, to scale differences to actions in [-1, 1]."""
    half = lambda kind: np.reshape(np.subtract(kind.high, kind.low) / 2, (1, *kind.shape))
    return {name: half(kind) for name, kind in kinds(spec).items() if isinstance(kind, Box)}


# --- observations ---------------------------------------------------------------------------


def encoding(env: Any, spec: Any) -> dict[str, Any]:
    """Describes how an observation of the environment is converted to the named inputs."""
    return node_encoding(env.node) if isinstance(env, gym.Encoded) else tree_encoding(spec)


def pruned(node: dict[str, Any], name: str, names: set[str]) -> dict[str, Any]:
    """Returns the encoding without parts that the policy does not read."""
    if "parts" not in node:
        return node
    inside = lambda key: {n for n in names if n == key or n.startswith(f"{key}.")}
    parts = [(key, at, child, f"{name}.{key}") for key, at, child in node["parts"]]
    read = [[k, at, pruned(c, full, names)] for k, at, c, full in parts if inside(full)]
    return node | {"parts": read}


def node_encoding(node: Any) -> dict[str, Any]:
    if not isinstance(node, Leaf):
        return {"parts": [[name, key, node_encoding(child)] for name, key, child in node]}
    if node.choices is not None:
        return {"choices": [np.asarray(x).tolist() for x in node.choices]}
    return described(node)


def tree_encoding(tree: Any) -> dict[str, Any]:
    if isinstance(tree, dict | tuple | list):
        children = sorted(tree.items()) if isinstance(tree, dict) else enumerate(tree)
        return {"parts": [[str(key), key, tree_encoding(child)] for key, child in children]}
    if dataclasses.is_dataclass(tree):
        raise ThespisError("observations that are dataclasses cannot be exported: use dicts")
    return described(tree)


def described(x: Any) -> dict[str, Any]:
    """Returns the shape and type, for JSON."""
    return {"shape": list(x.shape), "dtype": np.dtype(x.dtype).name}


# --- running an export ----------------------------------------------------------------------


def compiled(code: str, arrays: dict[str, np.ndarray]) -> Callable[[dict], dict]:
    """Returns the function in the text of policy.py."""
    space: dict[str, Any] = {"__name__": "policy", "__file__": "policy.py"}
    exec(compile(code, "policy.py", "exec"), space)
    return lambda inputs: space["compute"](arrays, inputs)


def session(model: Any) -> Callable[[dict], dict]:
    """Returns a function that runs an ONNX model, by onnxruntime or the reference evaluator."""
    try:
        import onnxruntime  # pyright: ignore[reportMissingImports]

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        running = onnxruntime.InferenceSession(
            model.SerializeToString(), options, ["CPUExecutionProvider"]
        )
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        running = ReferenceEvaluator(model)
    names = [x.name for x in model.graph.output]
    strip = lambda name: name.removeprefix(to_onnx.NEXT)

    def run(inputs: dict) -> dict:
        return dict(zip(map(strip, names), running.run(None, inputs), strict=True))

    return run


# --- the read-me ----------------------------------------------------------------------------


def in_words(action: dict[str, Any]) -> str:
    if action["kind"] == "numbers":
        return f"float32{action['shape']} within {action['low']} .. {action['high']}"
    return f"a whole number from {action['first']} to {action['last']}"


def readme(about: dict[str, Any], format: str) -> str:
    """Returns README.md: the inputs, the outputs, and how to use the files."""
    rows = [f"| `{name}` | {x['dtype']}{x['shape']} |" for name, x in about["inputs"].items()]
    out = [f"| `{name}` | {in_words(x)} |" for name, x in about["actions"].items()]
    lines = [
        f"# {about['algorithm']} on {about['environment']}",
        "",
        "The greedy policy of a trained agent: from the raw observation of the environment",
        "(normalisation is included) to the action in the environment's own units.",
        "",
        "| input | type |",
        "|---|---|",
        *rows,
        "",
        "| output | type |",
        "|---|---|",
        *out,
    ]
    drawn = [name for name, x in about["memory"].items() if x["drawn_at_random"]]
    if about["memory"]:
        lines += ["", "It has a memory, which must be reset at the start of every episode."]
        if drawn:
            lines.append(f"Training drew {', '.join(drawn)} at random then: choose it yourself.")
    if format in ("numpy", "all"):
        start = ", ".join(f"{n}={about['memory'][n]['start']}" for n in drawn if n.isidentifier())
        lines += [
            "",
            "```python",
            "from policy import Policy  # policy.py and policy.npz; needs NumPy only",
            "",
            "policy = Policy()",
            f"policy.reset({start})",
            "action = policy(observation)",
            "```",
        ]
    if format in ("onnx", "all"):
        memory = "; feed the `next.` outputs back as its memory" if about["memory"] else ""
        lines += ["", f"`policy.onnx` takes the inputs of the table (a batch of one){memory}."]
    errors = dict(about["largest_difference"])
    rounded = {k: errors.pop(k) for k in REASONS if k in errors}
    differ = ", ".join(f"{k} {v:.0e}" for k, v in errors.items())
    lines += [
        "",
        f"Largest difference from the trained policy on {OBSERVATIONS:,} observations, for actions "
        f"in [-1, 1]: {differ}.",
        *(
            f"{REASONS[k]}: actions differ by up to {v:.0e} because of that."
            for k, v in rounded.items()
        ),
        "Shapes, bounds and the encoding of observations are in policy.json.",
    ]
    return "\n".join(lines) + "\n"
