"""A trained policy that needs NumPy and nothing else.

    policy = Policy()               # reads policy.npz in the folder of this file
    policy.reset()                  # at the start of every episode
    action = policy(observation)    # both in the environment's own units

`python policy.py` acts on saved observations and compares the actions with those of the trained
policy. policy.json describes inputs and outputs.
"""

import json
import os

import numpy as np


class Policy:
    def __init__(self, path=None):
        beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "policy.npz")
        with np.load(path or beside, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        self.about = json.loads(str(arrays.pop("about")))
        self.examples = {n: arrays.pop(n) for n in list(arrays) if n.startswith("example.")}
        self.start = {n: arrays.pop(n) for n in list(arrays) if n.startswith("memory.")}
        self.arrays = arrays
        self.reset()

    def reset(self, **values):
        """Starts a new episode. Parts of the memory can be set by their names, such as a skill."""
        self.memory = dict(self.start)
        for name, value in values.items():
            key = "memory." + name
            if key not in self.memory:
                known = ", ".join(n.partition(".")[2] for n in self.memory) or "none"
                raise ValueError(f"unknown memory {name!r}: the policy has {known}")
            old = self.memory[key]
            self.memory[key] = np.asarray(value, old.dtype).reshape(old.shape)

    def __call__(self, observation):
        """Returns the action for one observation; the memory is kept between calls."""
        inputs = dict(self.memory)
        encode(self.about["observation"], observation, "obs", inputs)
        outputs = compute(self.arrays, inputs)
        self.memory = {name: outputs[name] for name in self.memory}
        actions = {n.partition(".")[2]: x for n, x in outputs.items() if n.startswith("action")}
        actions = {n: x[0] if x.ndim > 1 else x[0].item() for n, x in actions.items()}
        return actions[""] if list(actions) == [""] else actions


def encode(node, observation, name, inputs):
    """Converts an observation of the environment to arrays [1, ...] in `inputs`."""
    if "parts" in node:
        for key, place, child in node["parts"]:
            encode(child, observation[place], name + "." + key, inputs)
    elif "choices" in node:
        sizes, starts = (np.array(x) for x in node["choices"])
        x = np.zeros((1, int(sizes.sum())), np.float32)
        x[0, np.cumsum(sizes) - sizes - starts + np.reshape(observation, -1)] = 1.0
        inputs[name] = x
    else:
        x = np.asarray(observation, node["dtype"])
        if x.size != np.prod(node["shape"], dtype=int):
            raise ValueError(f"{name} has shape {x.shape}, not {node['shape']}")
        inputs[name] = x.reshape(1, *node["shape"])


def check(policy):
    """Returns the largest difference from the saved actions, over one episode of observations."""
    names = [n for n in policy.examples if n.startswith("example.obs")]
    memory, worst = dict(policy.start), 0.0
    for t in range(len(policy.examples[names[0]])):
        inputs = {n.partition(".")[2]: policy.examples[n][t] for n in names}
        outputs = compute(policy.arrays, {**memory, **inputs})
        memory = {name: outputs[name] for name in memory}
        for name, x in outputs.items():
            if name.startswith("action"):
                expected = policy.examples["example." + name][t]
                worst = max(worst, float(np.max(np.abs(x.astype(np.float64) - expected))))
    return worst


def compute(p, inputs):
    """Returns {name: output} from {name: input}; `p` has the arrays of policy.npz."""
    return {}  # an export writes the operations here


if __name__ == "__main__":
    print(f"largest difference from the saved actions: {check(Policy()):.1e}")
