"""Plans of skills towards goals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from thespis.algos import DADS
from thespis.core import Spec, ThespisError
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import PointMass
from thespis.skills.planner import Planner, lead, plan, predict, pursue
from thespis.skills.rollout import rollout
from thespis.skills.score import judged

pytestmark = pytest.mark.usefixtures("kept")

GOALS = np.array([[1.0, 0.5], [-0.5, 1.0]])


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
    with pytest.raises(ThespisError, match="metra has no dynamics"):
        plan(far.algo, far.state, far.hp, *given)


def test_metra_cannot_be_led_by_a_goal_that_says_too_little():
    box = jax.ShapeDtypeStruct((3,), jnp.float32)
    spec = Spec(box, Autoreset(PointMass()).spec.action, descriptor="0:2")
    algo = DADS(spec, objective="metra", dynamics_sees="observation", hidden=(4,))
    state = jax.jit(algo.init)(random.key(0), algo.Hyper())
    with pytest.raises(ThespisError, match="train with dynamics_sees = descriptor"):
        lead(algo, state, jnp.zeros((1, 2)), jnp.zeros((1, 2)))
