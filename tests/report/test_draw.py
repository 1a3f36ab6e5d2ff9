import jax
import numpy as np
import pytest
from jax import random

from thespis.envs.classic import TASKS
from thespis.report.draw import frame

RED = np.array([0xD5, 0x5E, 0x00])


def moving(picture):
    """Where the part that moves is: the mean (x, y) of its pixels, y upwards."""
    y, x = np.nonzero((picture == RED).all(-1))
    assert len(x) > 50
    return x.mean(), picture.shape[0] - y.mean()


@pytest.mark.parametrize("name", TASKS)
def test_every_built_in_task_has_a_picture(name):
    task = TASKS[name]()
    obs = jax.tree.map(np.asarray, task.observe(task.start(random.key(0))))
    picture = frame(name, obs)
    assert picture.shape == (360, 480, 3)
    assert picture.dtype == np.uint8
    assert frame(name.removeprefix("jax:"), obs, size=(200, 151)).shape == (151, 200, 3)
    np.testing.assert_array_equal(frame(name, obs), picture)


def test_other_tasks_have_none():
    assert frame("brax:ant", np.zeros(3)) is None


def test_the_pendulum_points_where_the_observation_says():
    x, y = {}, {}
    for name, angle in {"up": 0.0, "left": np.pi / 2, "down": np.pi, "right": -np.pi / 2}.items():
        x[name], y[name] = moving(frame("pendulum", np.array([np.cos(angle), np.sin(angle), 0])))
    assert y["up"] > y["left"] + 50 > y["down"] + 100
    assert x["right"] > x["up"] + 50 > x["left"] + 100
    assert x["up"] == pytest.approx(240, abs=2)


def test_the_pendulum_shows_its_speed():
    still, fast = (frame("pendulum", np.array([1.0, 0.0, speed])) for speed in (0, 6))
    assert (still != fast).any()


def test_the_car_climbs_the_hill():
    (left, high), (middle, low), (right, top) = (
        moving(frame("mountain-car", np.array([x, 0.0]))) for x in (-1.0, -np.pi / 6, 0.45)
    )
    assert left < middle < right
    assert low < high < top


def test_the_cart_moves_and_its_pole_leans():
    cart = lambda x, angle: moving(frame("cartpole", np.array([x, 0, angle, 0])))
    assert cart(-1, 0)[0] < cart(0, 0)[0] < cart(1, 0)[0]
    assert cart(0, -0.2)[0] < cart(0, 0)[0] < cart(0, 0.2)[0]


def test_the_links_hang_and_swing_up():
    tip = lambda first, second: moving(
        frame("acrobot", np.array([f(x) for x in (first, second) for f in (np.cos, np.sin)]))
    )
    assert tip(0, 0)[1] < tip(0, np.pi / 2)[1] < tip(np.pi, 0)[1]
    assert tip(-np.pi / 2, 0)[0] < tip(0, 0)[0] < tip(np.pi / 2, 0)[0]


def test_the_walker_of_the_grid_goes_down_and_right():
    legal = np.ones(4, bool)
    at = lambda *cell: moving(frame("grid", {"action_mask": legal, "cell": np.array(cell)}))
    assert at(-1.0, -1.0)[1] > at(1.0, -1.0)[1] + 100
    assert at(-1.0, 1.0)[0] > at(-1.0, -1.0)[0] + 100


def test_the_point_moves_and_leaves_a_trail():
    (x0, y0), (x1, y1) = (moving(frame("pointmass", np.array(p))) for p in ([0, 0], [0.5, -0.5]))
    assert x1 > x0
    assert y1 < y0
    path = np.array([[-1.0, 0.0], [-0.5, 0.0]])
    bare, drawn = (frame("pointmass", np.zeros(2), trail=trail) for trail in (path[:0], path))
    assert (bare != drawn).any(-1).sum() > 200
    assert (frame("pointmass", np.zeros(2), goal=(-1.0, 1.0)) != bare).any()


def test_the_ball_falls_and_the_paddle_moves():
    def sight(row, column, paddle):
        image = np.zeros((10, 10, 1), np.uint8)
        image[9, paddle] = image[row, column] = 255
        return frame("catch", image)

    (x0, y0), (x1, y1) = moving(sight(0, 2, 5)), moving(sight(6, 7, 5))
    assert x1 > x0 + 50
    assert y1 < y0 - 50
    assert moving(sight(9, 5, 5))[1] < y1 - 50
    assert (sight(0, 2, 5) != sight(0, 2, 6)).any()


def test_pictures_have_smooth_edges():
    picture = frame("pendulum", np.array([np.cos(0.5), np.sin(0.5), 0.0]))
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 30
