"""The skill workbench on the smallest runs: roll-outs, scores, plans, hierarchies, exports."""

import importlib.util
import json
import math
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import thespis
from tests import small
from thespis.algos import DADS
from thespis.cli.command import main
from thespis.core import Box, Discrete, Spec, ThespisError
from thespis.engine.loop import Loop
from thespis.engine.rollout import FrozenPolicy
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import PointMass
from thespis.runs.directory import write_json
from thespis.runs.skill_actions import over_skills
from thespis.runs.skilled import Skilled
from thespis.skills import standalone
from thespis.skills.export import export
from thespis.skills.planner import Planner, lead, plan, predict, pursue
from thespis.skills.rollout import rollout
from thespis.skills.score import cells, hull_area, judged
from thespis.tuning.hyper import fill

pytestmark = pytest.mark.usefixtures("kept")

TINY = {"env": "jax:pointmass", "alternatives": 5, "steps": 300, "eval_freq": 150}
GOALS = np.array([[1.0, 0.5], [-0.5, 1.0]])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return thespis.train("dads", **small.arguments(**TINY, out=tmp_path_factory.mktemp("runs")))


@pytest.fixture(scope="module")
def skilled(run):
    return Skilled(run)


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """A run of three one-hot skills."""
    more = {"skills": 3, "skill_kind": "one-hot", "out": tmp_path_factory.mktemp("runs")}
    return Skilled(thespis.train("dads", **small.arguments(**TINY, **more)))


class Untrained:
    """What `Skilled` asks of a run, of METRA before it has learned."""

    path = "untrained"

    def __init__(self):
        env = Autoreset(PointMass())
        self.algo = DADS(env.spec, objective="metra", hidden=(8,))
        self.parts = Loop(self.algo, env), env

    def member(self, which):
        return 0

    def frozen(self, member, which):
        hp = jax.tree.map(lambda x: x[0], fill(DADS.Hyper, {}, 1))
        return FrozenPolicy(jax.jit(self.algo.init)(random.key(0), hp), hp, jnp.int32(0))


@pytest.fixture(scope="module")
def far():
    return Skilled(Untrained())


# --- roll-outs and scores -------------------------------------------------------------------


def test_a_roll_out_follows_each_skill_from_start_to_end(skilled):
    skills = np.array([[1, 1], [-1, 0.5], [0, 0]], np.float32)
    played = rollout(skilled, skills, episodes=2, seed=3)
    assert played.descriptors.shape == (3, 2, 101, 2)
    assert (played.ends == 100).all()
    np.testing.assert_array_equal(played.end_points, played.descriptors[:, :, -1])
    # The policy is blind to where it is, so a skill always moves alike.
    moved = np.diff(played.descriptors, axis=2)
    np.testing.assert_allclose(moved, np.broadcast_to(moved[:, :1, :1], moved.shape), atol=1e-5)
    np.testing.assert_allclose(
        played.returns[0, 0],
        -np.linalg.norm(played.descriptors[0, 0, 1:] - 1.0, axis=-1).sum(),
        rtol=1e-4,
    )
    again = rollout(skilled, skills, episodes=2, seed=3, steps=10)
    assert again.descriptors.shape == (3, 2, 11, 2)
    np.testing.assert_array_equal(again.descriptors, played.descriptors[:, :, :11])


def test_diversity_returns_are_bounded_by_the_log_of_the_skills_compared(skilled, counted):
    for it, many in ((skilled, 6), (counted, 3)):
        played = rollout(it, it.skills(4), 1)
        assert (played.diversity <= math.log(many) + 1e-5).all()
        assert played.diversity_returns.shape == (len(played.skills), 1)


def test_scores_are_what_the_trajectories_say(skilled):
    played = rollout(skilled, skilled.skills(20), 2)
    found = judged(skilled, played)
    ends = played.end_points.mean(1)
    assert found["skills"] == 20
    assert found["hull_area"] == pytest.approx(hull_area(ends))
    assert found["true_return"] == pytest.approx(played.returns.mean(), rel=1e-5)
    assert found["spread_within_a_skill"] < 0.1  # starts are within 0.05 of the origin
    assert found["predictability"] <= 1


def test_the_area_of_a_hull():
    square = np.array([[0, 0], [2, 0], [2, 2], [0, 2], [1, 1], [1, 0]], float)
    assert hull_area(square) == 4
    assert hull_area(square[:2]) == 0
    assert hull_area(square[[0, 4, 2]]) == 0
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)], 1)
    assert hull_area(circle) == pytest.approx(np.pi, rel=1e-3)


def test_cells_count_places_and_leave_out_what_follows_an_end():
    line = np.stack([np.linspace(0, 1, 20), np.zeros(20)], 1)
    assert cells(line) == 20
    assert cells(np.concatenate([line, np.full((5, 2), np.nan)])) == 20


# --- plans ----------------------------------------------------------------------------------


def known(kind="uniform", **options):
    """Dynamics by hand: a step of skill z moves by 0.1 z [0:2]; statistics shift and scale."""
    skills = 2 if kind == "uniform" else 4
    given = {"skills": skills, "skill_kind": kind, "hidden": (), "components": 1} | options
    algo = DADS(Autoreset(PointMass()).spec, **given)
    state = jax.jit(algo.init)(random.key(0), algo.Hyper())
    way = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], np.float32)[:skills]
    if kind == "uniform":
        way = np.eye(2, dtype=np.float32)
    weight = jnp.asarray(np.pad(np.float32(0.1) * way, ((0, 0), (1, 0))))
    parts = lambda s: (s.dynamics.params.weights, s.dynamics.params.biases)
    none = jnp.asarray(np.zeros(3, np.float32))
    return algo, eqx.tree_at(parts, state, ([weight], [none]))


def test_what_is_predicted_is_in_the_units_of_the_descriptor():
    algo, state = known()
    mean, var = jnp.array([0.5, 0.0]), jnp.array([4.0, 1.0])
    state = eqx.tree_at(lambda s: (s.change_stats.mean, s.change_stats.var), state, (mean, var))
    x, skill = jnp.array([[1.0, 2.0]]), jnp.array([[1.0, -1.0]])
    found = jax.jit(lambda *x: predict(algo, state, algo.Hyper(), *x))(x, skill)
    np.testing.assert_allclose(found, [[1 + 0.5 + 2 * 0.1, 2 - 0.1]], rtol=1e-5)


@jax.jit
def plan_to(state, goal, here):
    """Two skills that lead there, by dynamics that are known."""
    algo, _ = known()
    towards = lambda place: -jnp.linalg.norm(place - goal[None], axis=-1)
    return plan(algo, state, algo.Hyper(), Planner(horizon=2), here, towards, random.key(0))


@pytest.mark.parametrize("goal", [(5.0, 0.0), (-3.0, 3.0), (0.0, -9.0)])
def test_plans_lead_towards_the_goal(goal):
    _, state = known()
    skills = np.asarray(plan_to(state, np.float32(goal), np.zeros(2, np.float32)))
    assert skills.shape == (2, 2)
    wanted = np.array(goal) / max(abs(np.array(goal)))
    assert np.abs(skills[0] - wanted).max() < 0.35
    assert (abs(skills) <= 1).all()


def test_a_plan_stops_at_a_goal_that_is_reached():
    algo, state = known()
    towards = lambda place: -jnp.linalg.norm(place - 0.3, axis=-1)
    given = algo, state, algo.Hyper(), Planner()
    skills = jax.jit(lambda here: plan(*given, here, towards, random.key(1)))(
        np.float32([0.3, 0.3])
    )
    assert np.abs(skills).max() < 0.3


def test_plans_of_countable_skills_are_enumerated():
    algo, state = known("one-hot")
    towards = lambda place: -jnp.linalg.norm(place - jnp.array([[-1.0, -1.0]]), axis=-1)
    given = algo, state, algo.Hyper(), Planner(horizon=2)
    best = jax.jit(lambda here: plan(*given, here, towards, random.key(0)))
    chosen = set(np.asarray(best(np.zeros(2, np.float32))).argmax(-1).tolist())
    assert chosen == {2, 3}  # left and down, in either order


def test_dynamics_that_see_what_they_do_not_predict_cannot_plan():
    algo, state = known(dynamics_sees="observation")
    with pytest.raises(ThespisError, match="plans need the observation"):
        predict(algo, state, algo.Hyper(), jnp.zeros((1, 2)), jnp.zeros((1, 2)))


def test_a_pursuit_is_scored_by_its_mean_distance(skilled):
    found = pursue(skilled, GOALS, Planner(candidates=4, rounds=2, hold=25))
    assert found.paths.shape == (2, 101, 2)
    assert found.skills.shape == (2, 4, 2)
    away = np.linalg.norm(found.paths[:, 1:] - GOALS[:, None], axis=-1)
    np.testing.assert_allclose(found.scores, -away.mean(1) / np.linalg.norm(GOALS, axis=1))
    blind = pursue(skilled, GOALS, Planner(hold=50), steps=60, blind=True)
    assert blind.skills.shape == (2, 2, 2)
    with pytest.raises(ThespisError, match="give 2 numbers"):
        pursue(skilled, np.zeros((1, 3)))


# --- METRA ----------------------------------------------------------------------------------


def test_metra_leads_to_goals_and_scores_what_it_can(far):
    """The skill is the way there in its representation; nothing is predicted."""
    found = pursue(far, GOALS, Planner(hold=25))
    phi, seen = far.state.dynamics.params, lambda x: far.algo.scaled(far.state, jnp.asarray(x))
    way = phi(seen(GOALS.astype(np.float32))) - phi(seen(found.paths[:, 0]))
    wanted = way / np.linalg.norm(way, axis=-1, keepdims=True)
    np.testing.assert_allclose(found.skills[:, 0], wanted, atol=1e-5)
    played = rollout(far, far.skills(5), 2, steps=20)
    judgement = judged(far, played)
    assert judgement["hull_area"] >= 0
    assert "predictability" not in judgement
    moved = phi(seen(played.descriptors[0, 0, 1])) - phi(seen(played.descriptors[0, 0, 0]))
    assert played.diversity[0, 0, 1] == pytest.approx(float(moved @ played.skills[0]), abs=1e-5)
    given = Planner(), jnp.zeros(2), lambda place: place.sum(-1), random.key(0)
    with pytest.raises(ThespisError, match="metra predicts nothing"):
        plan(far.algo, far.state, far.hp, *given)


def test_metra_cannot_be_led_by_a_goal_that_says_too_little():
    box = jax.ShapeDtypeStruct((3,), jnp.float32)
    spec = Spec(box, Autoreset(PointMass()).spec.action, descriptor="0:2")
    algo = DADS(spec, objective="metra", dynamics_sees="observation", hidden=(4,))
    state = jax.jit(algo.init)(random.key(0), algo.Hyper())
    with pytest.raises(ThespisError, match="train with dynamics_sees = descriptor"):
        lead(algo, state, jnp.zeros((1, 2)), jnp.zeros((1, 2)))


def test_skills_of_metra_are_directions_wherever_they_are_named(far, tmp_path):
    np.testing.assert_allclose(far.skill("0.3,-0.4"), [0.6, -0.8], rtol=1e-6)
    with pytest.raises(ThespisError, match=r"skill = 0,0: give 2 numbers .* not all 0"):
        far.skill("0,0")
    env = over_skills(Autoreset(PointMass()), far.run, hold=3)
    world, _ = env.reset(random.key(0), 1)
    step = jax.jit(lambda world, z: env.step(world, z[None], random.key(1))[1].obs)
    ends = [step(world, np.float32(z)) for z in ([0.3, 0.4], [0.6, 0.8])]
    np.testing.assert_allclose(*ends, rtol=1e-6)
    exported = alone(export(far, tmp_path))
    obs, skill = np.ones((3, 2), np.float32), far.skills(3)
    np.testing.assert_allclose(exported.act(obs, skill), far.act(obs, skill)[0], atol=1e-5)
    here, there = np.zeros((2, 2), np.float32), GOALS.astype(np.float32)
    wanted = lead(far.algo, far.state, jnp.asarray(here), jnp.asarray(there))
    np.testing.assert_allclose(exported.lead(here, there), wanted, atol=1e-5)


# --- an agent on top ------------------------------------------------------------------------


def test_a_step_of_skills_is_the_sum_of_their_steps(skilled):
    env = over_skills(Autoreset(PointMass()), skilled.run, hold=7)
    assert (env.limit, env.spec.action.shape) == (15, (2,))
    skill = jnp.array([[0.5, -1.0]])
    state, first = env.reset(random.key(0), 1)
    _, after = jax.jit(env.step)(state, skill, random.key(1))
    inner, now = skilled.env.reset(random.key(0), 1)
    total = 0.0
    step = jax.jit(skilled.env.step)
    for _ in range(7):
        inner, now = step(inner, skilled.act(now.obs, skill)[0], random.key(1))
        total += float(now.reward[0])
    np.testing.assert_allclose(after.obs, now.obs, rtol=1e-5)
    np.testing.assert_allclose(after.reward, [total], rtol=1e-5)
    np.testing.assert_array_equal(first.obs, skilled.env.reset(random.key(0), 1)[1].obs)


def test_any_algorithm_learns_on_top_of_frozen_skills(skilled, counted, tmp_path):
    given = small.arguments(env="jax:pointmass", steps=120, learning_starts=40, out=tmp_path)
    given |= {"skills_from": str(skilled.run.path), "skill_steps": 20}
    top = thespis.train("sac", **given)
    assert top.evaluate(episodes=2)["lengths"] == [5, 5]
    with pytest.raises(ThespisError, match="run of sac, which has no skills"):
        Skilled(top)
    assert over_skills(Autoreset(PointMass()), counted.run, 10).spec.action == Discrete(3)
    with pytest.raises(ThespisError, match="was trained on jax-pointmass, not on jax-pendulum"):
        thespis.train("sac", **(given | {"env": "jax:pendulum"}))


def test_the_learning_curve_is_that_of_diversity(run, tmp_path, monkeypatch):
    drawn = []
    note = lambda curves, path, metric: drawn.append((metric, curves)) or path
    monkeypatch.setattr("thespis.report.plots.learning_curve", note)
    copy = shutil.copytree(run.path, tmp_path / "run")
    write_json(copy / "status.json", {"state": "stopped", "step": 300})
    thespis.resume(copy, progress=False)
    ((metric, (curve,)),) = drawn
    assert metric == "eval/diversity_reward"
    np.testing.assert_array_equal(curve.runs[0][1], run.metrics[metric])


# --- host environments ----------------------------------------------------------------------


@pytest.mark.slow
def test_skills_of_gymnasium_environments(tmp_path):
    """Toy observes its episode, time and start: time is a descriptor, the episode is constant."""
    given = {"alternatives": 5, "steps": 200, "eval_freq": 100, "out": tmp_path}
    given = small.arguments(**given) | {"env": small.Toy}
    run = thespis.train("dads", **given, descriptor=(1,))
    diversity = run.metrics["eval/diversity_reward"]
    assert np.isfinite(diversity).all()
    assert (diversity <= 15 * math.log(6)).all()
    worth = run.metrics["eval/skill_dependence"]
    assert np.isfinite(worth).all()
    assert (worth <= 15 * math.log(6)).all()
    it = Skilled(thespis.load(run.path, env=small.Toy))
    played = rollout(it, it.skills(2), 1)
    np.testing.assert_array_equal(played.descriptors[:, :, :, 0], [[range(16)]] * 2)
    top = over_skills(thespis.make(small.Toy), it.run, hold=4).instance()
    obs, _ = top.reset(seed=0)
    ends = [top.step(np.zeros(2))[3] for _ in range(4)]
    assert (obs[1], ends) == (0, [False, False, False, True])  # after 4, 8, 12 and 15 steps
    with pytest.raises(ThespisError, match="descriptor = 0 never changes"):
        thespis.train("dads", **given, descriptor="0")


# --- other uses -----------------------------------------------------------------------------


def test_skills_act_at_the_training_clock(skilled, monkeypatch):
    def act(self, state, hp, memory, obs, key, step, mode):
        return jnp.full((len(memory.skill), 2), step), memory, None

    monkeypatch.setattr(DADS, "act", act)
    step = skilled.run.status["step"]
    assert step > 0
    action, _ = Skilled(skilled.run).act(jnp.zeros((3, 2)), jnp.zeros((3, 2)))
    np.testing.assert_array_equal(action, step)


def test_a_policy_may_be_told_its_skill(skilled):
    policy = skilled.run.policy(skill=(1.0, -1.0))
    told = skilled.act(jnp.zeros((1, 2)), jnp.array([[1.0, -1.0]]))[0]
    np.testing.assert_allclose(policy(np.zeros(2, np.float32)), told[0], rtol=1e-5)


def alone(folder):
    """Exported skills, read without the library."""
    module = importlib.util.spec_from_file_location("exported", folder / "skills.py")
    exported = importlib.util.module_from_spec(module)
    module.loader.exec_module(exported)
    return exported.Skills(folder / "skills.npz")


def test_an_export_acts_and_predicts_with_numpy_alone(skilled, tmp_path):
    assert main(["skills", "export", str(skilled.run.path), "-o", str(tmp_path)]) == 0
    exported = alone(tmp_path)
    obs, skill = np.ones((3, 2), np.float32), skilled.skills(3)
    np.testing.assert_allclose(exported.act(obs, skill), skilled.act(obs, skill)[0], atol=1e-5)
    x = jnp.zeros((3, 2))
    given = skilled.algo, skilled.state, skilled.hp
    wanted = jax.jit(lambda *x: predict(*given, *x))(x, skill)
    np.testing.assert_allclose(exported.change(skill), wanted, atol=1e-5)


def test_exported_skills_rescale_actions_exactly_as_boxes_do(tmp_path):
    rng, box = np.random.default_rng(0), Box((-3.0, 0.1), (1.0, 7.0), (2,))
    weight = rng.normal(size=(3, 4)).astype(np.float32)
    low, high = box.bounds
    parts = {"actor.weight0": weight, "actor.bias0": np.zeros(4, np.float32), "low": low}
    np.savez(tmp_path / "skills.npz", high=high, policy_sees=np.arange(2), **parts)
    obs, skill = rng.normal(size=(50, 2)).astype(np.float32), np.ones((50, 1), np.float32)
    unit = np.tanh((np.concatenate([obs, skill], 1) @ weight)[:, :2])
    acted = standalone.Skills(tmp_path / "skills.npz").act(obs, skill)
    np.testing.assert_array_equal(acted, box.to_env(unit))


# --- the command line -----------------------------------------------------------------------


def told(capsys, *words):
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_command_tells_one_line_of_json(skilled, capsys, tmp_path):
    path = skilled.run.path
    few = ("--skills", 4, "--episodes", 1)
    assert told(capsys, "skills", "score", path, *few)["skills"] == 4
    file = told(capsys, "skills", "plot", path, *few, "-o", tmp_path / "skills.png")["plot"]
    assert (tmp_path / "skills.png").stat().st_size > 10_000
    assert file == str(tmp_path / "skills.png")
    quick = ("--candidates", 4, "--rounds", 2)
    found = told(capsys, "skills", "plan", path, "--goal", "1,0.5", "-1,1", *quick)
    assert len(found["scores"]) == 2
    assert (path / "plots" / "plan.png").exists()
    video = tmp_path / "skill.gif"
    found = told(
        capsys, "skills", "rollout", path, "--skill", "-0.5,1", "--episodes", 1, "-o", video
    )
    assert len(found["descriptors"][0]) == 101
    assert video.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["skills", "dance", "RUN"], "unknown command skills 'dance'"),
        (["skills", "plan", "RUN"], "goal: give 2 numbers each"),
        (["skills", "plan", "RUN", "--goal", "1"], "goal: give 2 numbers each"),
        (["skills", "rollout", "RUN"], "name the skill"),
        (["skills", "rollout", "RUN", "--skill", "2,0"], "give 2 numbers from -1 to 1"),
        (["skills", "plot"], "name the run"),
    ],
)
def test_one_line_says_what_is_wrong(skilled, capsys, words, message):
    words = [str(skilled.run.path) if word == "RUN" else word for word in words]
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_help_names_every_command_and_its_options(capsys):
    assert main(["skills"]) == 0
    overview = capsys.readouterr().out
    for command in ("plot", "score", "rollout", "plan", "export"):
        assert f"  {command}" in overview
        assert main(["skills", command, "--help"]) == 0
        assert f"example: thespis skills {command} " in capsys.readouterr().out
