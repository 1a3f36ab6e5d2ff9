"""Environments of several agents on the host: the contract, agents that leave, names, spaces."""

import dataclasses
import json
import sys
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from jax import random

import thespis
from thespis import envs
from thespis.algos import MASAC
from thespis.core import Discrete, Row, ThespisError
from thespis.envs import pettingzoo
from thespis.envs.check import check_env
from thespis.envs.pettingzoo import PettingZoo
from thespis.replay.ring import Replay

LIMIT = 4


class Walk:
    """Agents observe [time, start]; the reward is the time, times 1 for a, 2 for b, 3 for c.

    `ends` and `cuts` say when an agent terminates, or is truncated while others go on. All are
    truncated after four steps. It is duck-typed as PettingZoo's: no library is needed.
    """

    metadata = {"name": "walk", "render_modes": ["rgb_array"]}  # noqa: RUF012
    possible_agents = ["a", "b", "c"]  # noqa: RUF012

    def __init__(self, ends=None, cuts=None, fault="", render_mode=None):
        self.ends, self.cuts, self.fault = ends or {}, cuts or {}, fault
        self.render_mode, self.unwrapped, self.agents = render_mode, self, []

    def __str__(self):
        return "walk"

    def observation_space(self, agent):
        return spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Box(np.float32([-3, 0]), np.float32([1, 2]))

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.time, self.start = list(self.possible_agents), 0, self.rng.uniform()
        return self.seen(), {}

    def seen(self):
        return {agent: self.observed(agent) for agent in self.agents}

    def observed(self, agent):
        return np.array([self.time, self.start], np.float32)

    def step(self, actions):
        assert actions.keys() == set(self.agents), "only those who are there act"
        self.received, self.time = actions, self.time + 1
        obs = self.seen()
        if self.fault == "nan" and self.time == 2:
            obs["b"][1] = np.nan
        worth = {"a": 1.0, "b": 2.0, "c": 3.0}
        rewards = {agent: worth[agent] * self.time for agent in self.agents}
        ended = {agent: self.ends.get(agent, 99) <= self.time for agent in self.agents}
        cut = {agent: self.cuts.get(agent, LIMIT) <= self.time for agent in self.agents}
        self.agents = [agent for agent in self.agents if not (ended[agent] or cut[agent])]
        return obs, rewards, ended, cut, {}

    def render(self):
        return np.full((24, 32, 3), 10 * self.time, np.uint8)

    def close(self):
        pass


def played(steps, n=1, action=None, **options):
    """Rows of n environments, the first of which is that of the reset."""
    env = PettingZoo(lambda: Walk(**options))
    running = env.open(n, 0)
    idle = np.zeros((n, *env.spec.action_shape), np.float32)
    rows = [running.reset()]
    rows += [running.step(idle if action is None else action) for _ in range(steps)]
    return jax.tree.map(lambda *xs: np.stack(xs), *rows)


# --- the contract ---------------------------------------------------------------------------


def test_shapes_types_and_names():
    env = PettingZoo(Walk)
    assert env.spec.agents == ("a", "b", "c")
    assert env.spec.rewards == ("a", "b", "c")
    assert env.spec.action_shape == (3, 2)
    rows = played(2, n=2)
    expected = jax.tree.map(lambda s: ((3, 2, *s.shape), s.dtype), env.spec.obs)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), rows.obs) == expected
    assert (rows.reward.shape, rows.reward.dtype) == ((3, 2, 3), np.float32)


def test_a_time_limit_truncates_with_the_true_last_observation_and_then_starts_anew():
    rows = played(6)
    np.testing.assert_array_equal(rows.obs["agents"][:, 0, 0, 0], [0, 1, 2, 3, 4, 0, 1])
    np.testing.assert_array_equal(rows.truncated[:, 0], [0, 0, 0, 0, 1, 0, 0])
    assert not rows.terminated.any()
    np.testing.assert_array_equal(rows.reward[:, 0, 2], [0, 3, 6, 9, 12, 0, 3])
    assert rows.obs["alive"].all()  # at the limit all would have gone on
    assert not rows.obs["ended"].any()


def test_an_agent_that_ends_early_is_away_until_the_next_episode():
    rows = played(5, ends={"b": 2})
    np.testing.assert_array_equal(rows.obs["alive"][:, 0, 1], [1, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(rows.obs["ended"][:, 0, 1], [0, 0, 1, 1, 1, 0])
    assert rows.obs["alive"][:, 0, [0, 2]].all()
    np.testing.assert_array_equal(rows.reward[:, 0, 1], [0, 2, 4, 0, 0, 0])
    # Its own last observation is there; then it sees nothing.
    np.testing.assert_array_equal(rows.obs["agents"][:, 0, 1, 0], [0, 1, 2, 0, 0, 0])
    np.testing.assert_array_equal(rows.truncated[:, 0], [0, 0, 0, 0, 1, 0])


def test_who_was_paid_is_told_with_the_reward():
    rows = played(5, ends={"b": 2})
    np.testing.assert_array_equal(rows.obs["paid"][1:, 0, 1], [1, 1, 0, 0, 1])
    assert rows.obs["paid"][:, 0, [0, 2]].all()


class Rounds(Walk):
    """Five rounds that pay 1 to every agent that is still there; b leaves after two of them."""

    metadata = {"name": "rounds", "render_modes": []}  # noqa: RUF012

    def step(self, actions):
        obs, rewards, ended, _, info = super().step(actions)
        cut = dict.fromkeys(rewards, self.time >= 5)
        ended["b"] = self.time >= 2
        there = [agent for agent in rewards if not (ended.get(agent) or cut[agent])]
        self.agents = there
        return obs, dict.fromkeys(rewards, 1.0), {a: ended[a] for a in rewards}, cut, info


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    chosen = {
        "steps": 60,
        "learning_starts": 20,
        "batch_size": 8,
        "hidden": (4,),
        "progress": False,
    }
    out = tmp_path_factory.mktemp("rounds")
    rare = {"eval_freq": 30, "eval_episodes": 2, "updates_per_step": 0}
    return thespis.train("masac", env=Rounds, out=out, **chosen, **rare)


def test_a_reward_of_the_team_counts_whole_when_agents_have_left(rounds):
    """Five perfect rounds are worth 5, to a team of which one agent left after two of them."""
    table = rounds.metrics
    for name in ("rollout/ep_rew_mean", "eval/mean_reward"):
        np.testing.assert_allclose(table[name], 5, rtol=1e-6, err_msg=name)
        parts = {agent: table[f"{name}/{agent}"] for agent in "abc"}
        for agent, total in parts.items():
            np.testing.assert_allclose(total, 2 if agent == "b" else 5, rtol=1e-6)
    assert rounds.evaluate(2)["returns"] == [5.0, 5.0]


@pytest.mark.parametrize("n_step", [1, 3])
def test_what_a_team_learns_from_counts_whole_when_agents_have_left(n_step):
    """Every step is worth 1; to agents with rewards of their own it is worth what they got."""
    env = PettingZoo(Rounds)
    running = env.open(1, 0)
    steps = [running.reset(), *(running.step(np.zeros((1, 3, 2), np.float32)) for _ in range(11))]
    idle = np.zeros((1, 3, 2), np.float32)
    lead = lambda x: jnp.asarray(np.asarray(x)[None])
    rows = [Row(*jax.tree.map(lead, (*step, idle))) for step in steps]
    replay, add = jax.jit(Replay.empty, static_argnums=0)(20, rows[0]), jax.jit(Replay.add)
    for row in rows:
        replay = add(replay, row)
    for team in (True, False):
        algo = MASAC(env.spec, hidden=(4,), batch_size=64, n_step=n_step, team_reward=team)
        hp = dataclasses.replace(algo.Hyper(), gamma=1.0)
        view = replay.view(jnp.int32(0))
        b = jax.jit(algo.sample)(view, None, hp, random.key(0), jnp.int32(0))
        valid = np.asarray(b.valid) > 0
        assert valid.any()
        if team:
            np.testing.assert_allclose(algo.scalar(b.reward)[valid], b.steps[valid], rtol=1e-6)
        else:
            left = np.asarray(b.obs["ended"])[:, 1]
            np.testing.assert_array_equal(np.asarray(b.reward)[:, 1][valid & left], 0)
            np.testing.assert_allclose(b.reward[:, 0][valid], b.steps[valid])


def test_an_agent_that_is_cut_off_early_has_not_ended():
    rows = played(4, cuts={"b": 2})
    np.testing.assert_array_equal(rows.obs["alive"][:, 0, 1], [1, 1, 0, 0, 0])
    assert not rows.obs["ended"].any()


def test_an_episode_terminates_when_the_last_agents_do():
    rows = played(4, ends={"a": 1, "b": 3, "c": 3})
    np.testing.assert_array_equal(rows.terminated[:, 0], [0, 0, 0, 1, 0])
    assert not rows.truncated.any()
    np.testing.assert_array_equal(rows.obs["alive"][:, 0].sum(-1), [3, 2, 2, 0, 3])
    np.testing.assert_array_equal(rows.obs["ended"][3, 0], [1, 1, 1])


def test_some_end_and_some_are_cut_off_at_once():
    rows = played(4, ends={"a": 4})
    assert rows.truncated[4, 0]
    assert not rows.terminated.any()
    np.testing.assert_array_equal(rows.obs["alive"][4, 0], [0, 1, 1])
    np.testing.assert_array_equal(rows.obs["ended"][4, 0], [1, 0, 0])


@pytest.mark.parametrize(
    ("given", "received"),
    [(-1, (-3, 0)), (1, (1, 2)), (0, (-1, 1)), (-7, (-3, 0)), (np.inf, (1, 2))],
)
def test_actions_are_rescaled_to_the_bounds_of_each_dimension(given, received):
    running = PettingZoo(Walk).open(1, 0)
    running.reset()
    running.step(np.full((1, 3, 2), given, np.float32))
    for action in running.envs[0].received.values():
        np.testing.assert_array_equal(action, np.float32(received))


def test_seeds_fix_everything_and_every_episode_starts_anew():
    starts = played(10, n=3).obs["agents"][::5, :, 0, 1]
    assert len(np.unique(starts)) == starts.size
    np.testing.assert_array_equal(starts, played(10, n=3).obs["agents"][::5, :, 0, 1])


def test_numbers_that_are_not_finite_are_named():
    message = "walk, environment 0, step 2: b: obs/agents is nan"
    with pytest.raises(ThespisError, match=message):
        played(3, fault="nan")


def test_a_wrong_number_of_actions_is_named():
    running = PettingZoo(Walk).open(1, 0)
    running.reset()
    with pytest.raises(ThespisError, match=r"walk: actions of shape \(1, 2, 2\), not \(1, 3, 2\)"):
        running.step(np.zeros((1, 2, 2)))


def test_check_env_knows_environments_of_several_agents():
    found = str(check_env(Walk))
    assert "autoreset" in found


# --- agents that differ, masks, states ------------------------------------------------------


class Motley(Walk):
    """Agents of different spaces: an image and a number, a vector, a masked vector."""

    state_space = spaces.Box(-1, 9, (1,), np.float32)

    def observation_space(self, agent):
        vector = lambda n: spaces.Box(-9, 9, (n,), np.float32)
        image = spaces.Box(0, 255, (2, 2, 1), np.uint8)
        mask = spaces.Dict({"action_mask": spaces.MultiBinary(4), "x": vector(1)})
        return {"a": spaces.Dict({"image": image, "n": vector(1)}), "b": vector(3), "c": mask}[
            agent
        ]

    def observed(self, agent):
        mask = np.arange(4) != 1 + self.time % 2
        image = np.full((2, 2, 1), 51, np.uint8)
        return {
            "a": {"image": image, "n": np.float32([self.time])},
            "b": np.float32([7, 8, 9]),
            "c": {"action_mask": mask.astype(np.int8), "x": np.float32([self.start])},
        }[agent]

    def action_space(self, agent):
        return spaces.Discrete({"a": 2, "b": 3, "c": 4}[agent], start=5 if agent == "b" else 0)

    def state(self):
        return np.float32([self.time])


def test_different_spaces_lie_side_by_side():
    env = PettingZoo(Motley)
    assert env.spec.actions == (Discrete(2), Discrete(3, 5), Discrete(4))
    running = env.open(1, 0)
    obs = running.reset().obs
    own = obs["agents"]
    np.testing.assert_allclose(own["observation"][0, 0], [0.2] * 4 + [0])
    np.testing.assert_allclose(own["observation"][0, 1], [7, 8, 9, 0, 0])
    np.testing.assert_array_equal(own["action_mask"][0], [[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]])
    assert obs["state"].tolist() == [[0.0]]
    assert running.step(np.array([[1, 2, 3]])).obs["state"].tolist() == [[1.0]]
    assert running.envs[0].received == {"a": 1, "b": 7, "c": 3}


def test_an_agent_without_a_legal_action_is_named():
    class Stuck(Motley):
        def observed(self, agent):
            obs = super().observed(agent)
            return obs | {"action_mask": np.zeros(4, np.int8)} if agent == "c" else obs

    with pytest.raises(ThespisError, match="c: action_mask allows no action"):
        PettingZoo(Stuck).open(1, 0).reset()


# --- whole runs -----------------------------------------------------------------------------

SMALL = {
    "steps": 120,
    "hidden": (8,),
    "batch_size": 16,
    "learning_starts": 60,
    "eval_freq": 60,
    "eval_episodes": 2,
    "progress": False,
}


@pytest.fixture(scope="module")
def motley(tmp_path_factory):
    out = tmp_path_factory.mktemp("motley")
    make = lambda render_mode=None: Motley(ends={"b": 2}, render_mode=render_mode)
    given = SMALL | {"shared_weights": False, "updates_per_step": 0}
    return make, thespis.train("masac", env=make, out=out, **given)


@pytest.mark.slow
def test_teams_of_different_agents_train_and_tell_of_each(motley):
    """Agent a gets 1 + 2 + 3 + 4, b twice 1 + 2 before it leaves, c three times all."""
    _, run = motley
    last = {name: x[np.isfinite(x)][-1] for name, x in run.metrics.items() if "rew" in name}
    for name in ("eval/mean_reward", "rollout/ep_rew_mean"):
        assert [last[name + x] for x in ("/a", "/b", "/c")] == [10, 6, 30]
        np.testing.assert_allclose(last[name], 20, rtol=1e-5)  # 2 t: of all, and of a and c
    assert run.evaluate(episodes=2, member=0)["lengths"] == [4, 4]


def test_a_policy_answers_those_who_are_there_in_their_own_units(motley):
    make, run = motley
    env, policy = make(), thespis.load(run.path, env=make).policy()
    obs, _ = env.reset(seed=3)
    for _ in range(4):
        actions = policy(obs)
        assert actions.keys() == obs.keys()
        for agent, action in actions.items():
            assert env.action_space(agent).contains(action)
        present = set(env.agents)
        obs, *_ = env.step({agent: actions[agent] for agent in present})


def test_a_video_is_made_of_what_the_environment_draws(motley, tmp_path):
    from thespis.report.play import play

    make, run = motley
    file, returns = play(thespis.load(run.path, env=make), path=tmp_path / "a.gif")
    assert file.stat().st_size > 0
    np.testing.assert_allclose(returns, [20], rtol=1e-5)


# --- names ----------------------------------------------------------------------------------


def test_environments_of_a_module_by_name(monkeypatch):
    module = ModuleType("walks")
    module.walk, module.inner = Walk, ModuleType("walks.inner")
    module.inner.parallel_env = Walk
    monkeypatch.setitem(sys.modules, "walks", module)
    monkeypatch.setattr(pettingzoo, "exists", lambda name: name in ("walks", "pettingzoo"))
    for name in ("pettingzoo:walks:walk", "pettingzoo:walks:inner"):
        env = envs.make(name)
        assert isinstance(env, PettingZoo)
        assert envs.label(env) == name.replace(":", "-")
    cut = envs.make("pettingzoo:walks:walk@ends={'a':1},fault=none").open(1, 0)
    cut.reset()
    assert cut.envs[0].ends == {"a": 1}
    assert cut.envs[0].fault is None


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(pettingzoo, "installed", lambda: False)
    with pytest.raises(ThespisError, match=r"pip install 'thespis\[pettingzoo\]'"):
        envs.make("pettingzoo:simple_spread_v3")


def test_mistakes_in_names_are_a_line(monkeypatch):
    monkeypatch.setattr(pettingzoo, "installed", lambda: True)
    with pytest.raises(ThespisError, match="unknown environment 'pettingzoo:simple_spreed_v3'"):
        envs.make("pettingzoo:simple_spreed_v3")
    with pytest.raises(ThespisError, match="write arguments as @NAME=VALUE, not 'continuous'"):
        envs.make("pettingzoo:simple_spread_v3@continuous")


def test_classes_and_functions_of_both_libraries_are_told_apart():
    assert isinstance(envs.make(Walk), PettingZoo)
    assert isinstance(envs.make(lambda: Walk()), PettingZoo)
    with pytest.raises(ThespisError, match="takes no|not a gymnasium.Env|unexpected|missing"):
        envs.make(lambda: object())


@pytest.mark.parametrize("continuous", ["false", "true"])
def test_mpe_keeps_the_contract(continuous):
    pytest.importorskip("mpe2")
    env = envs.make(f"pettingzoo:simple_spread_v3@max_cycles=3,continuous_actions={continuous}")
    assert env.limit == 3
    assert env.spec.agents == ("agent_0", "agent_1", "agent_2")
    running = env.open(2, 0)
    rows = [running.reset()]
    dtype = np.int32 if continuous == "false" else np.float32
    rows += [running.step(np.ones((2, *env.spec.action_shape), dtype)) for _ in range(5)]
    rows = jax.tree.map(lambda *xs: np.stack(xs), *rows)
    np.testing.assert_array_equal(rows.truncated[:, 0], [0, 0, 0, 1, 0, 0])
    assert not rows.terminated.any()
    assert rows.obs["alive"].all()
    together = rows.obs["agents"].reshape(6, 2, -1)
    np.testing.assert_allclose(rows.obs["state"], together, rtol=1e-6)
    assert (rows.obs["agents"][0] != rows.obs["agents"][4]).any()
    running.close()


def test_names_are_listed_where_the_library_is_installed():
    pytest.importorskip("mpe2")
    assert "pettingzoo:simple_spread_v3" in envs.names()["pettingzoo"]
    assert json.dumps(envs.names())
