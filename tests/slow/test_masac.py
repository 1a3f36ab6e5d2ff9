"""Multi-agent SAC to thresholds: fixed budgets, several seeds, the last policies, greedily."""

import numpy as np
import pytest

import thespis
from tests.slow.typed import train

pytestmark = pytest.mark.slow

SMALL = {"preset": "particles", "hidden": (64, 64), "seeds": range(3)}
MEETING = SMALL | {"steps": 20_000, "eval_episodes": 2}
SPREAD = SMALL | {"steps": 100_000, "eval_freq": 20_000, "eval_episodes": 20}


@pytest.mark.parametrize("env", ["jax:meeting", "jax:meeting-continuous"])
def test_a_team_dares_to_meet_and_independent_learners_stay_at_home(tmp_path, env):
    """11 is for meeting, 5 for staying at home."""

    def returns(critic):
        run = train("masac", env=env, critic=critic, **MEETING, out=tmp_path)
        return np.array(run.evaluate(episodes=10)["returns"]).mean(1)

    together, alone = returns("joint"), returns("own")
    assert (together > 10).all(), together
    assert (alone < 5.01).all(), alone


@pytest.fixture(scope="module")
def spread(tmp_path_factory):
    """Returns of the last policies [seeds, 100], with joint critics and alone, and of chance."""
    pytest.importorskip("mpe2")
    given = SPREAD | {"out": tmp_path_factory.mktemp("spread")}

    def returns(**more):
        run = train("masac", env="pettingzoo:simple_spread_v3", **given, **more)
        return np.array(run.evaluate(episodes=100)["returns"])

    return returns(), returns(critic="own"), random_play()


def error(returns: np.ndarray) -> float:
    """The standard error of seeds [seeds, episodes], or of episodes."""
    means = returns.mean(1) if returns.ndim > 1 else returns
    return means.std(ddof=1) / np.sqrt(len(means))


def test_simple_spread_is_learned_as_a_team_and_alone(spread):
    *learned, chance = spread
    for returns in learned:
        both = np.hypot(error(returns), error(chance))
        assert returns.mean() > chance.mean() + 5 * both, (returns.mean(1), chance.mean())


def test_on_simple_spread_a_team_is_no_worse_than_alone(spread):
    team, alone, _ = spread
    assert team.mean() > alone.mean() - np.hypot(error(team), error(alone)), (team, alone)


def random_play(episodes: int = 200) -> np.ndarray:
    """Team returns of uniformly random actions."""
    running = thespis.make("pettingzoo:simple_spread_v3").open(episodes, 0)
    rng, total, step = np.random.default_rng(0), np.zeros(episodes), running.reset()
    while not step.final.any():
        step = running.step(rng.integers(0, 5, (episodes, 3)))
        total += step.reward.mean(-1)
    running.close()
    return total
