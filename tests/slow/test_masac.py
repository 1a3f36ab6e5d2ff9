"""Multi-agent SAC to thresholds: fixed budgets, several seeds, the last policies, greedily."""

import numpy as np
import pytest

import thespis

pytestmark = pytest.mark.slow

SMALL = {"hidden": (64, 64), "eval_episodes": 2, "progress": False}
MEETING = SMALL | {"steps": 12_000, "envs": 8, "updates_per_step": 0.25, "learning_starts": 2000}
SPREAD = SMALL | {
    "steps": 100_000,
    "envs": 16,
    "updates_per_step": 0.08,
    "learning_starts": 5000,
    "batch_size": 128,
    "gamma": 0.95,
    "eval_freq": 20_000,
    "eval_episodes": 20,
}


@pytest.mark.parametrize("env", ["jax:meeting", "jax:meeting-continuous"])
def test_a_team_dares_to_meet_and_independent_learners_stay_at_home(tmp_path, env):
    """11 is for meeting, 5 for staying at home."""

    def returns(critic):
        given = MEETING | {"critic": critic, "seeds": range(3), "out": tmp_path}
        run = thespis.train("masac", env=env, batch_size=128, **given)
        return np.array(run.evaluate(episodes=10)["returns"]).mean(1)

    together, alone = returns("joint"), returns("own")
    assert (together > 10).all(), together
    assert (alone < 5.01).all(), alone


def spread(tmp_path, **given):
    """Team returns [seeds, 100] of the last policies."""
    given = SPREAD | {"seeds": range(3), "out": tmp_path} | given
    run = thespis.train("masac", env="pettingzoo:simple_spread_v3", **given)
    return np.array(run.evaluate(episodes=100)["returns"])


def test_simple_spread_is_learned_as_a_team_no_worse_than_alone(tmp_path):
    pytest.importorskip("mpe2")
    few = {"steps": 1000, "learning_starts": 900, "actor_lr": 0.0, "seeds": (9,), "eval_freq": 1000}
    untrained = spread(tmp_path, **few)
    team, alone = spread(tmp_path), spread(tmp_path, critic="own")
    error = lambda x: x.mean(1).std(ddof=1) / np.sqrt(len(x))
    chance = random_play()
    for learned in (team, alone):
        both = np.hypot(error(learned), chance.std(ddof=1) / np.sqrt(chance.size))
        assert learned.mean() > chance.mean() + 5 * both, (learned.mean(1), chance.mean())
    assert team.mean() > alone.mean() - np.hypot(error(team), error(alone)), (team, alone)
    assert untrained.mean() < team.mean()


def random_play(episodes: int = 200) -> np.ndarray:
    """Team returns of uniformly random actions."""
    running = thespis.make("pettingzoo:simple_spread_v3").open(episodes, 0)
    rng, total, step = np.random.default_rng(0), np.zeros(episodes), running.reset()
    while not step.final.any():
        step = running.step(rng.integers(0, 5, (episodes, 3)))
        total += step.reward.mean(-1)
    running.close()
    return total
