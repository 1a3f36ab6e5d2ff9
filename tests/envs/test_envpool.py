"""EnvPool's adapter, around a stand-in with its interface and around the library if it is there."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from tests.engine.clerks import Clerk, rows_of
from tests.envs.test_contract import keeps_the_contract
from tests.small import Toy
from thespis.engine.host_driver import HostDriver
from thespis.engine.loop import Loop
from thespis.envs import envpool, make
from thespis.runs.tuning_rounds import end_episodes
from thespis.tuning import hyper


class Pool:
    """Toys side by side. One that is over starts anew in the next step, its action unheard."""

    spec = SimpleNamespace(config=SimpleNamespace(max_episode_steps=15))

    def __init__(self, num_envs, env_seed):
        self.toys, self.seeds = [Toy() for _ in range(num_envs)], list(env_seed)
        self.observation_space = self.toys[0].observation_space
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)
        self.over = np.ones(num_envs, bool)

    def start(self, i):
        obs, _ = self.toys[i].reset(seed=self.seeds[i])
        self.seeds[i], self.over[i] = None, False
        return obs

    def reset(self, env_id=None):
        ids = np.arange(len(self.toys)) if env_id is None else env_id
        return np.stack([self.start(i) for i in ids]), {"env_id": ids}

    def step(self, action):
        assert action.shape == (len(self.toys), 2)
        none = 0.0, False, False
        told = [
            (self.start(i), *none) if self.over[i] else toy.step(action[i])[:4]
            for i, toy in enumerate(self.toys)
        ]
        obs, reward, terminated, truncated = map(np.stack, zip(*told, strict=True))
        self.over = terminated | truncated
        return obs, reward, terminated, truncated, {}

    def close(self):
        pass


@pytest.fixture
def toy(monkeypatch):
    standin = SimpleNamespace(
        list_all_envs=lambda: ["Toy-v0"],
        make=lambda name, num_envs, env_seed, env_type: Pool(num_envs, env_seed),
    )
    monkeypatch.setattr(envpool, "library", lambda: standin)
    return make("envpool:Toy-v0")


def test_the_stand_in_keeps_the_contract(toy):
    keeps_the_contract(toy)


def ends_in_the_next_step(envs, idle):
    """Episodes that are ended begin anew in the next step; the others do not notice."""
    envs.reset()
    before = envs.step(idle)
    envs.end(np.array([True, False, True]))
    step = envs.step(idle)
    assert not (step.terminated | step.truncated).any()
    np.testing.assert_array_equal(step.reward[[0, 2]], 0)
    return before, step, envs.step(idle)


def test_episodes_that_are_ended_begin_anew_in_the_next_step(toy):
    envs = toy.open(3, 0)
    idle = np.zeros((3, 2), np.float32)
    steps = ends_in_the_next_step(envs, idle)
    episode, moment = (np.array([step.obs[:, i] for step in steps]) for i in (0, 1))
    np.testing.assert_array_equal(moment, [[1, 1, 1], [0, 2, 0], [1, 3, 1]])
    assert (np.diff(episode, axis=0) > 0).tolist() == [[True, False, True], [False] * 3]
    envs.end(np.ones(3, bool))
    envs.reset()
    np.testing.assert_array_equal(envs.step(idle).obs[:, 1], 1)  # a reset has ended them already


def test_the_library_ends_episodes_too():
    pytest.importorskip("envpool")
    envs = make("envpool:Pendulum-v1").open(3, 0)
    before, step, after = ends_in_the_next_step(envs, np.zeros((3, 1), np.float32))
    far = np.abs(step.obs - before.obs).max(-1)
    assert far[1] < 1  # it goes on
    assert np.abs(after.obs - step.obs).max() < 1.5
    envs.close()


def test_an_exchange_ends_the_episodes_of_copies(toy):
    """No row of a copy follows one of the member before it."""
    loop, seeds = Loop(Clerk(toy.spec), toy, envs=2, capacity=40), jnp.arange(3, dtype=jnp.int32)
    driver, hps = HostDriver(loop, seeds), hyper.fill(Clerk.Hyper, {}, 3)
    x = driver.run(driver.init(seeds, hps), hps, None, seeds, 4, "random", False)
    end_episodes(driver, np.array([False, True, False]))
    rows = rows_of(driver.run(x, hps, None, seeds, 6, "random", False))
    driver.close()
    episode, moment = rows.obs[..., 0], rows.obs[..., 1]
    final = rows.terminated | rows.truncated
    np.testing.assert_array_equal(final.any(-1), np.outer(np.arange(10) == 4, [0, 1, 0]))
    np.testing.assert_array_equal(np.diff(episode, axis=0) > 0, final[:-1])
    np.testing.assert_array_equal(moment[1:], np.where(final[:-1], 0, moment[:-1] + 1))
