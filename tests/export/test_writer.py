"""A policy that was exported acts as the one that was trained, without JAX."""

import dataclasses
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import thespis
from tests.algos import reference
from tests.algos.test_actor_critic import spec
from tests.small import arguments
from thespis.algos import ALGORITHMS, SAC, TAAC, DiscreteSAC
from thespis.algos.frame_stack import FrameStack
from thespis.cli.command import main
from thespis.core import MASK, Box, Discrete, Spec, ThespisError
from thespis.engine.rollout import FrozenPolicy
from thespis.export import to_onnx, writer
from thespis.export.writer import Exported, compiled, readme, session
from thespis.nn.networks import Network, fold

pytestmark = pytest.mark.usefixtures("kept")

LOPSIDED = Box((-3.0, 0.1), (1.0, 0.7), (2,))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    given = arguments(steps=150, learning_starts=100, seeds=(0, 7), updates_per_step=0)
    return thespis.train("td3", out=tmp_path_factory.mktemp("pair"), **given)


def exported(algo, env=None, seed=1) -> Exported:
    """Of a network as it begins, with statistics that have seen something."""
    hp = algo.Hyper()

    @jax.jit
    def begin(key):
        state = algo.init(key, hp)
        if getattr(state, "stats", None) is None:
            return state
        busy = lambda x: x + 0.3 if jnp.issubdtype(x.dtype, jnp.floating) else x
        return dataclasses.replace(state, stats=jax.tree.map(busy, state.stats))

    return Exported(algo, env, FrozenPolicy(begin(random.key(seed)), hp, jnp.int32(0)))


def policies(it: Exported):
    code, arrays = it.numpy(it.about)
    return compiled(code, arrays), session(to_onnx.model(it.graph, {}))


@cache
def small(name: str) -> Exported:
    Algorithm = ALGORITHMS[name]
    algo = Algorithm(spec(Algorithm, obs=3), hidden=(6, 5), normalize_observations=True)
    if isinstance(algo.spec.action, Box):
        algo = dataclasses.replace(algo, spec=dataclasses.replace(algo.spec, action=LOPSIDED))
    return exported(algo)


# --- every algorithm ------------------------------------------------------------------------


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_both_forms_act_as_the_policy(name):
    it = small(name)
    for policy in policies(it):
        assert it.compare(policy, name) <= 1e-6


def test_half_precision_is_exported_as_float32_and_says_so():
    half = Network(dtype="bfloat16")
    it = exported(SAC(spec(SAC, obs=3), hidden=(16, 16), actor_network=half))
    for policy in policies(it):
        assert it.compare(policy, "half precision") <= 1e-6
    rounding = it.rounding()
    assert 1e-5 < rounding["bfloat16"] < 0.05
    assert small("sac").rounding() == {}
    about = it.about | {"algorithm": "sac", "environment": "x", "largest_difference": rounding}
    assert "Training computed in bfloat16, and the files compute in float32" in readme(
        about, "numpy"
    )


def normed(algo) -> Exported:
    """Of batch norms that have seen observations far from 0."""
    hp, draw = algo.Hyper(), np.random.default_rng(0).normal(30, 0.5, (64, 3))

    @jax.jit
    def begin(key):
        state, obs = algo.init(key, hp), jnp.asarray(draw, jnp.float32)
        actor = state.actor.params
        for _ in range(3):
            actor = actor.train(obs, jnp.ones(64))[1]
        return dataclasses.replace(state, actor=dataclasses.replace(state.actor, params=actor))

    return Exported(algo, None, FrozenPolicy(begin(random.key(0)), hp, jnp.int32(0)))


NORMED = Network(norm="batch", input_norm="batch", momentum=0.1)


@pytest.mark.parametrize("Algorithm", [SAC, DiscreteSAC])
def test_policies_with_batch_norms_are_compared_with_what_was_trained(Algorithm, monkeypatch):
    it = normed(Algorithm(spec(Algorithm, obs=3), hidden=(8, 8), actor_network=NORMED))
    obs = it.observations(200)
    np.testing.assert_allclose(obs.mean(0), 30, rtol=0.01)  # as the norm has seen them
    np.testing.assert_allclose(obs.std(0), 0.5, rtol=0.3)
    for policy in policies(it):
        assert it.compare(policy, "") <= 1e-3
    rounding = it.rounding()
    assert 0 <= rounding["folding"] <= 1e-3
    about = it.about | ABOUT | {"largest_difference": rounding}
    assert "Batch norms are folded into the weights" in readme(about, "numpy")

    wrong = lambda tree: jax.tree.map(lambda x: -x, fold(tree))
    monkeypatch.setattr(writer, "fold", wrong)
    folded_wrongly = Exported(it.algo, None, it.trained)
    with pytest.raises(ThespisError, match="the folded policy differs from the trained one"):
        folded_wrongly.rounding()


RUNNER = """
import sys
for name in ("jax", "equinox", "thespis", "onnx"):
    sys.modules[name] = None
import json, runpy
import numpy as np
worst = {}
for folder in sys.argv[1:]:
    space = runpy.run_path(folder + "/policy.py")
    policy = space["Policy"](folder + "/policy.npz")
    worst[folder] = space["check"](policy)
    def seen(node, i):
        if "parts" in node:
            return {at: seen(child, i) for _, at, child in node["parts"]}
        return np.full(node["shape"], i, node["dtype"])
    policy.reset()
    actions = [str(policy(seen(policy.about["observation"], i))) for i in (1, 2, 3)]
    policy.reset()
    assert str(policy(seen(policy.about["observation"], 1))) == actions[0], folder
print(json.dumps(worst))
"""


def test_a_process_without_jax_acts_alike(tmp_path):
    for name in ALGORITHMS:
        it = small(name)
        code, arrays = it.numpy(it.about)
        writer.write(tmp_path / name, {"policy.py": code, "policy.npz": arrays})
    folders = [str(tmp_path / name) for name in ALGORITHMS]
    done = subprocess.run(
        [sys.executable, "-I", "-c", RUNNER, *folders], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    worst = json.loads(done.stdout)
    assert list(worst) == folders
    assert max(worst.values()) <= 1e-4  # memories go on from one step to the next


def test_a_policy_that_differs_is_not_written(pair, tmp_path, monkeypatch):
    monkeypatch.setitem(writer.to_numpy.PLAIN, "tanh", "1.0001 * np.tanh({})")
    with pytest.raises(ThespisError, match="differs from the trained one by .* nothing is written"):
        pair.export(tmp_path / "there")
    assert not (tmp_path / "there").exists()


# --- observations and actions ---------------------------------------------------------------


def test_illegal_actions_are_never_taken_and_counting_begins_where_it_does():
    obs = {"x": jax.ShapeDtypeStruct((2,), jnp.float32), MASK: jax.ShapeDtypeStruct((4,), bool)}
    it = exported(DiscreteSAC(Spec(obs, Discrete(4, start=5)), hidden=(6,)))
    numpy, onnx = policies(it)
    rng = np.random.default_rng(0)
    for _ in range(30):
        legal = np.zeros((1, 4), bool)
        legal[0, rng.integers(4)] = True
        given = {"obs.x": rng.normal(size=(1, 2)).astype(np.float32), f"obs.{MASK}": legal}
        for policy in (numpy, onnx):
            assert policy(given)["action"].tolist() == (5 + legal.argmax(-1)).tolist()


def runner(it: Exported, folder: Path):
    """The class of policy.py, as its users have it."""
    code, arrays = it.numpy(it.about)
    writer.write(folder, {"policy.py": code, "policy.npz": arrays})
    space: dict = {"__name__": "policy", "__file__": str(folder / "policy.py")}
    exec(code, space)
    return space["Policy"]()


def seen(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


IMAGE = {"eye": seen(8, 9, 2, dtype=jnp.uint8), "speed": seen(2)}


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    "algo",
    [
        SAC(
            Spec(IMAGE, LOPSIDED),
            hidden=(5,),
            conv_channels=(3,),
            conv_kernels=(3,),
            conv_strides=(2,),
        ),
        FrameStack.wrap(SAC, Spec(IMAGE["speed"], LOPSIDED), 3, hidden=(5,)),
        FrameStack.wrap(TAAC, Spec(IMAGE, LOPSIDED), 2, hidden=(5,)),
    ],
    ids=["images", "stacked vectors", "stacked images"],
)
def test_images_and_stacks(algo):
    it = exported(algo)
    for policy in policies(it):
        assert it.compare(policy, "") <= 1e-6


def test_what_only_critics_see_is_not_asked_for(tmp_path):
    obs = {"own": seen(2), "secret": seen(3)}
    it = exported(SAC(Spec(obs, LOPSIDED), hidden=(5,), privileged=("secret",)))
    assert list(it.about["inputs"]) == ["obs.own"]
    assert runner(it, tmp_path)({"own": np.ones(2)}).shape == (2,)


class Fading(SAC):
    """Its actions fade with the training clock."""

    def act(self, state, hp, memory, obs, key, step, mode):
        action, *rest = super().act(state, hp, memory, obs, key, step, mode)
        return action * 0.1 ** (jnp.asarray(step, jnp.float32) / 100), *rest


def test_a_policy_is_exported_at_its_training_clock(tmp_path):
    it = exported(Fading(reference.spec(3), hidden=(6,)))
    late = Exported(it.algo, None, dataclasses.replace(it.policy, step=jnp.int32(100)))
    assert list(late.about["inputs"]) == ["obs"]
    for policy in policies(late):
        assert late.compare(policy, "") <= 1e-6
    early, faded = (runner(x, tmp_path / str(i)) for i, x in enumerate((it, late)))
    obs = np.ones(3, np.float32)
    np.testing.assert_allclose(faded(obs), 0.1 * early(obs), rtol=1e-4)


# --- memory ---------------------------------------------------------------------------------


def test_memory_of_exploration_is_left_out():
    for algo in (
        DiscreteSAC(reference.discrete_spec(3), hidden=(4,), noise_repeat=4),
        SAC(reference.spec(3), hidden=(4,), noise_repeat=4),
    ):
        it = exported(algo)
        assert algo.memory(random.key(0), 1) is not None
        assert it.about["memory"] == {}
        assert list(it.about["inputs"]) == ["obs"]


def test_what_is_drawn_for_an_episode_is_told():
    told = exported(TAAC(reference.spec(3), hidden=(4,), first="random")).about["memory"]
    assert not any(x["drawn_at_random"] for x in told.values())  # that is for training
    skills = small("dads").about["memory"]
    assert {name for name, x in skills.items() if x["drawn_at_random"]} == {"skill"}


def test_a_skill_is_drawn_in_training_and_chosen_at_a_reset(tmp_path):
    it = small("dads")
    assert it.about["memory"]["skill"]["drawn_at_random"]
    assert "skill" in writer.readme(it.about | ABOUT, "numpy")
    policy = runner(it, tmp_path)
    actions = []
    for skill in ([1.0, -1.0], [-1.0, 1.0]):
        policy.reset(skill=skill)
        first, second = (policy(np.ones(3)) for _ in range(2))
        np.testing.assert_array_equal(first, second)  # it stays for the episode
        actions.append(first)
    assert np.abs(np.subtract(*actions)).max() > 1e-3


ABOUT = {"algorithm": "dads", "environment": "x", "largest_difference": {"numpy": 1e-7}}


def test_policies_that_draw_at_random_are_refused():
    with pytest.raises(ThespisError, match="is random with.*epsilon_greedy"):
        exported(TAAC(reference.spec(3), hidden=(4,), epsilon_greedy=0.1))


# --- the command ----------------------------------------------------------------------------


def test_the_command_writes_a_folder(pair, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(writer, "OBSERVATIONS", 1000)
    argv = ["export", str(pair.path), "--format", "all", "-o", str(tmp_path / "here")]
    assert main([*argv, "--member", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    names = {"policy.py", "policy.npz", "policy.onnx", "policy.json", "README.md"}
    assert {Path(file).name for file in told["files"]} == names
    assert set(told["largest_difference"]) == {"numpy", "onnx"}
    about = json.loads((tmp_path / "here" / "policy.json").read_text())
    assert (about["algorithm"], about["environment"], about["member"]) == ("td3", "jax-pendulum", 1)
    assert about["actions"]["action"]["low"] == [-2.0]
    assert "action = policy(observation)" in (tmp_path / "here" / "README.md").read_text()

    policy = runner_of(tmp_path / "here")
    trained = pair.policy(1)
    for obs in np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32):
        np.testing.assert_allclose(policy(obs), trained(obs), atol=1e-5)


def runner_of(folder: Path):
    space: dict = {"__name__": "policy", "__file__": str(folder / "policy.py")}
    exec((folder / "policy.py").read_text(), space)
    return space["Policy"]()


def test_all_members_have_folders_of_their_own(pair, capsys):
    assert main(["export", str(pair.path), "--member", "all"]) == 0
    assert "acts as the trained policy" in capsys.readouterr().out
    found = {p.parent.name for p in (pair.path / "export").rglob("policy.npz")}
    assert found == {"member0", "member1"}


def test_a_missing_library_is_named(pair, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", str(pair.path), "--format", "onnx"]) == 2
    assert "pip install 'thespis[onnx]'" in capsys.readouterr().err
