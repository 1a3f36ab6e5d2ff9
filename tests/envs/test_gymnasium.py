"""Gymnasium environments of all kinds, good and faulty."""

import sys
import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from tests.envs.toys import GymTally
from thespis.core import Box, Discrete, ThespisError
from thespis.envs.gymnasium import Gymnasium


class Any(gymnasium.Env):
    """Observes samples of a space; says what it is told to."""

    def __init__(self, obs=None, action=None):
        self.observation_space = obs or spaces.Box(-1, 1, (3,))
        self.action_space = action or spaces.Box(-1, 1, (1,))
        self.received = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(1000)))
        return self.observation_space.sample(), {}

    def step(self, action):
        self.received.append(action)
        return self.observation_space.sample(), 1.0, False, False, {}


def fails(call, *words):
    """It raises one line that has all these words."""
    with pytest.raises(ThespisError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text, text
    return caught.value


# --- equal to a loop by hand ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["Pendulum-v1", "CartPole-v1", "MountainCarContinuous-v0"])
def test_equals_a_loop_by_hand(name):
    envs = Gymnasium(name).open(2, seed=5)
    step = envs.reset()
    rng = np.random.default_rng(0)
    plain = [gymnasium.make(name) for _ in range(2)]
    obs = [env.reset(seed=5 + i)[0] for i, env in enumerate(plain)]
    over = [False, False]
    np.testing.assert_array_equal(step.obs, obs)
    for _ in range(450):
        if name == "CartPole-v1":
            action = rng.integers(0, 2, 2)
            own = action
        else:
            action = rng.uniform(-1, 1, (2, 1)).astype(np.float32)
            own = action * plain[0].action_space.high
        step = envs.step(action)
        for i, env in enumerate(plain):
            if over[i]:
                obs, reward, over[i] = env.reset()[0], 0.0, False
                assert not step.terminated[i]
                assert not step.truncated[i]
            else:
                obs, reward, terminated, truncated, _ = env.step(own[i])
                assert (step.terminated[i], step.truncated[i]) == (terminated, truncated)
                over[i] = terminated or truncated
            np.testing.assert_array_equal(step.obs[i], obs)
            assert step.reward[i] == np.float32(reward)


# --- what it is made from -------------------------------------------------------------------


def test_is_made_from_an_id_a_class_or_a_function():
    assert Gymnasium("Pendulum-v1").name == "Pendulum-v1"
    assert Gymnasium(GymTally).name == "GymTally"
    assert Gymnasium(lambda: GymTally(end=3)).name == "GymTally"
    assert Gymnasium(lambda: gymnasium.make("CartPole-v1")).name == "CartPole-v1"


def test_knows_the_time_limit_where_there_is_one():
    limited = lambda: gymnasium.wrappers.TimeLimit(GymTally(), 7)
    assert Gymnasium("Pendulum-v1").limit == 200
    assert Gymnasium(limited).limit == 7
    assert Gymnasium(GymTally).limit is None


def test_a_wrapped_time_limit_truncates():
    envs = Gymnasium(lambda: gymnasium.wrappers.TimeLimit(GymTally(), 2)).open(1, 0)
    envs.reset()
    ends = [envs.step(np.zeros((1, 2))) for _ in range(5)]
    assert [bool(s.truncated[0]) for s in ends] == [False, True, False, False, True]
    assert not any(s.terminated[0] for s in ends)


def test_an_id_without_a_version_is_the_newest():
    assert Gymnasium("Pendulum").name == "Pendulum-v1"


def test_an_instance_is_refused():
    fails(lambda: Gymnasium(GymTally()), "instance", "GymTally", "lambda")


def test_a_function_that_makes_something_else_is_refused():
    fails(lambda: Gymnasium(lambda: 3), "int", "gymnasium.Env")


def test_a_constructor_that_fails_is_named():
    class Broken(GymTally):
        def __init__(self):
            raise RuntimeError("no\nlicence")

    fails(lambda: Gymnasium(Broken), "Broken", "RuntimeError: no licence")


def test_an_unknown_id_names_its_neighbours():
    fails(lambda: Gymnasium("Pendulm-v1"), "'Pendulm-v1'", "did you mean Pendulum-v1")
    fails(lambda: Gymnasium("Pendulum-v0"), "did you mean Pendulum-v1")
    fails(lambda: Gymnasium("cart pole"), "did you mean CartPole-v1")
    fails(lambda: Gymnasium("Elsewhere/Thing-v5"), "unknown environment", "PACKAGE:ID")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("mujoco", "mujoco"), ("box2d", "box2d"), ("classic_control", "classic")],
)
def test_a_missing_library_names_the_extra_to_install(monkeypatch, theirs, ours):
    def needy():
        raise gymnasium.error.DependencyNotInstalled(f'run `pip install "gymnasium[{theirs}]"`')

    monkeypatch.setitem(gymnasium.registry, "Needy-v0", EnvSpec("Needy-v0", needy))
    fails(lambda: Gymnasium("Needy-v0"), "Needy-v0", f"pip install 'thespis[{ours}]'")


def test_a_missing_module_of_a_family_names_its_extra(monkeypatch):
    spec = EnvSpec("Needy-v0", "gymnasium.envs.mujoco.missing:Missing")
    monkeypatch.setitem(gymnasium.registry, "Needy-v0", spec)
    fails(lambda: Gymnasium("Needy-v0"), "pip install 'thespis[mujoco]'")


def test_remarks_of_gymnasium_are_not_errors():
    class Float64(Any):
        def __init__(self):
            super().__init__(spaces.Box(-np.full(2, 0.1), np.full(2, 0.1), dtype=np.float32))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs = Gymnasium(Float64).open(1, 0)
        envs.reset()
        envs.step(np.zeros((1, 1)))


# --- observations ---------------------------------------------------------------------------

KINDS = {
    "float64": (spaces.Box(-1, 1, (3,), np.float64), (3,), np.float32),
    "int": (spaces.Box(0, 9, (3,), np.int64), (3,), np.float32),
    "number": (spaces.Box(0, 1, ()), (1,), np.float32),
    "matrix": (spaces.Box(0, 1, (2, 3)), (2, 3), np.float32),
    "image": (spaces.Box(0, 255, (8, 8, 3), np.uint8), (8, 8, 3), np.uint8),
    "bytes": (spaces.Box(0, 255, (8,), np.uint8), (8,), np.float32),
    "discrete": (spaces.Discrete(5, start=-2), (5,), np.float32),
    "multi-discrete": (spaces.MultiDiscrete([2, 3]), (5,), np.float32),
    "multi-binary": (spaces.MultiBinary(4), (4,), np.float32),
}


@pytest.mark.parametrize("kind", KINDS)
def test_observations_become_arrays_that_networks_can_read(kind):
    space, shape, dtype = KINDS[kind]
    env = Gymnasium(lambda: Any(space))
    assert env.spec.obs == jax.ShapeDtypeStruct(shape, dtype)
    envs = env.open(2, 0)
    for step in (envs.reset(), envs.step(np.zeros((2, 1)))):
        assert step.obs.shape == (2, *shape)
        assert step.obs.dtype == dtype
        assert np.any(step.obs)


def test_choices_are_one_hot():
    class Fixed(Any):
        def reset(self, **_):
            return self.told, {}

    class One(Fixed):
        told = -1

        def __init__(self):
            super().__init__(spaces.Discrete(4, start=-2))

    class Two(Fixed):
        told = np.array([1, 0])

        def __init__(self):
            super().__init__(spaces.MultiDiscrete([2, 3]))

    np.testing.assert_array_equal(Gymnasium(One).open(1, 0).reset().obs, [[0, 1, 0, 0]])
    np.testing.assert_array_equal(Gymnasium(Two).open(1, 0).reset().obs, [[0, 1, 1, 0, 0]])


def test_images_arrive_as_they_are():
    space = spaces.Box(0, 255, (4, 4, 1), np.uint8)
    made = []
    envs = Gymnasium(lambda: made.append(Any(space)) or made[-1]).open(1, 0)
    made[-1].reset = lambda seed: (np.full((4, 4, 1), 200, np.uint8), {})
    np.testing.assert_array_equal(envs.reset().obs, np.full((1, 4, 4, 1), 200))


def test_dicts_and_tuples_become_dicts_of_arrays():
    space = spaces.Dict(
        camera=spaces.Box(0, 255, (4, 4, 3), np.uint8),
        body=spaces.Dict(speed=spaces.Box(-1, 1, (2,)), gear=spaces.Discrete(3)),
        pair=spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (1,))]),
    )
    env = Gymnasium(lambda: Any(space))
    step = env.open(3, 0).reset()
    shapes = jax.tree.map(lambda x: x.shape, step.obs)
    assert shapes == {
        "camera": (3, 4, 4, 3),
        "body": {"speed": (3, 2), "gear": (3, 3)},
        "pair": {"0": (3, 2), "1": (3, 1)},
    }
    assert jax.tree.structure(step.obs) == jax.tree.structure(env.spec.obs)
    assert step.obs["camera"].dtype == np.uint8
    hash(env.spec)


def test_an_observation_space_without_arrays_is_refused():
    space = spaces.Text(5)
    fails(lambda: Gymnasium(lambda: Any(space)), "Any", "Text", "TransformObservation")


class Masked(Any):
    """Tells which of three actions are legal."""

    def __init__(self, space, legal=((1, 0, 1), (0, 1, 0)), ends=False):
        super().__init__(spaces.Dict(action_mask=space, x=spaces.Box(-1, 1, (2,))))
        self.legal, self.ends, self.count = legal, ends, 0

    def seen(self):
        mask = np.array(self.legal[self.count], self.observation_space["action_mask"].dtype)
        self.count += 1
        return {"action_mask": mask, "x": np.zeros(2, np.float32)}

    def reset(self, *, seed=None, options=None):
        return self.seen(), {}

    def step(self, action):
        return self.seen(), 0.0, self.ends, False, {}


MASKS = [spaces.MultiBinary(3), spaces.Box(0, 1, (3,), np.int8), spaces.Box(0, 255, (3,), np.uint8)]


@pytest.mark.parametrize("space", MASKS)
def test_a_mask_of_legal_actions_is_bool(space):
    env = Gymnasium(lambda: Masked(space))
    assert env.spec.obs["action_mask"] == jax.ShapeDtypeStruct((3,), np.bool_)
    envs = env.open(2, 0)
    first, second = envs.reset(), envs.step(np.zeros((2, 1)))
    np.testing.assert_array_equal(first.obs["action_mask"], [[True, False, True]] * 2)
    np.testing.assert_array_equal(second.obs["action_mask"], [[False, True, False]] * 2)
    assert first.obs["action_mask"].dtype == np.bool_


def test_a_mask_must_allow_something_until_the_end():
    stuck = [(1, 1, 1), (0, 0, 0)]
    for ends in (True, False):
        envs = Gymnasium(lambda ends=ends: Masked(MASKS[0], stuck, ends)).open(1, 0)
        envs.reset()
        if ends:
            assert not envs.step(np.zeros((1, 1))).obs["action_mask"].any()
        else:
            words = "Masked, environment 0, step 1:", "obs['action_mask'] allows no action"
            fails(lambda envs=envs: envs.step(np.zeros((1, 1))), *words)


def test_a_mask_of_another_kind_is_refused():
    fails(lambda: Gymnasium(lambda: Masked(spaces.Discrete(3))), "action_mask", "MultiBinary")


# --- actions --------------------------------------------------------------------------------


def running(action):
    made = []
    env = Gymnasium(lambda: made.append(Any(action=action)) or made[-1])
    envs = env.open(1, 0)
    envs.reset()
    return env, envs, made[-1].received


def test_an_action_has_the_shape_and_type_of_its_space():
    space = spaces.Box(np.array([[-1.0, 0.0], [0.0, 0.0]]), np.full((2, 2), 4.0), dtype=np.float64)
    env, envs, received = running(space)
    assert env.spec.action == Box((-1.0, 0.0, 0.0, 0.0), (4.0,) * 4, (2, 2))
    envs.step(jnp.array([[-1.0, 1.0, 0.0, 0.5]]))
    np.testing.assert_allclose(received[0], [[-1.0, 4.0], [2.0, 3.0]])
    assert received[0].dtype == np.float64


def test_discrete_actions_count_from_the_start_of_their_space():
    env, envs, received = running(spaces.Discrete(3, start=5))
    assert env.spec.action == Discrete(3, start=5)
    envs.step(jnp.array([0], jnp.int32))
    envs.step(np.array([2]))
    assert received == [5, 7]


def test_infinite_bounds_are_refused():
    space = spaces.Box(np.float32([-1, -np.inf]), np.float32([1, 1]))
    fails(lambda: Gymnasium(lambda: Any(action=space)), "Any", "dimension 1", "TransformAction")


def test_infinite_bounds_are_fixed_as_the_message_says():
    from gymnasium.wrappers import ClipAction, TimeLimit, TransformAction

    bounded, endless = spaces.Box(-2, 2, (1,)), spaces.Box(-np.inf, np.inf, (1,))
    transformed = lambda: TransformAction(Any(action=endless), lambda a: a, bounded)
    assert Gymnasium(transformed).spec.action == Box((-2.0,), (2.0,), (1,))
    clipped = lambda: TimeLimit(ClipAction(Any(action=bounded)), 10)
    fails(lambda: Gymnasium(clipped), "remove the wrapper ClipAction")


@pytest.mark.parametrize("space", ["observation_space", "action_space"])
def test_a_missing_space_is_named(space):
    class Lacking(Any):
        def __init__(self):
            super().__init__()
            delattr(self, space)

    fails(lambda: Gymnasium(Lacking), f"Lacking has no {space}: set self.{space} in __init__")


@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(2),
        spaces.Dict(a=spaces.Discrete(2)),
        spaces.Box(0, 9, (2,), np.int64),
    ],
)
def test_other_actions_are_refused(space):
    fails(lambda: Gymnasium(lambda: Any(action=space)), f"Any: actions of {space}", "Discrete;")


def test_actions_of_a_wrong_shape_are_refused():
    _, envs, _ = running(spaces.Box(-1, 1, (2,)))
    fails(lambda: envs.step(np.zeros((1, 3))), "(1, 3)", "(1, 2)")
    fails(lambda: envs.step(np.zeros((2, 1))), "(2, 1)", "(1, 2)")


# --- faults while running -------------------------------------------------------------------


class Faulty(GymTally):
    """Goes wrong at the third step of the first episode of the environment seeded 1."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        self.armed = seed == 1
        return super().reset(seed=seed)

    def step(self, action):
        obs, reward, *rest = super().step(action)
        if self.armed and obs[0] == 3:
            obs, reward = self.fault(obs, reward)
        return obs, reward, *rest


def crash(obs, reward):
    raise ZeroDivisionError("the robot\nfell")


FAULTS = {
    "nan observation": (lambda o, r: (o * [1, np.nan, 1, 1], r), ["obs is nan", "index 1"]),
    "infinite observation": (lambda o, r: (o * [1, 1, np.inf, 1], r), ["obs is -inf", "index 2"]),
    "nan reward": (lambda o, r: (o, np.float64(np.nan)), ["reward is nan"]),
    "infinite reward": (lambda o, r: (o, -np.inf), ["reward is -inf"]),
    "no reward": (lambda o, r: (o, None), ["step 3: the reward is None; return a number"]),
    "wrong shape": (lambda o, r: (o[:1], r), ["shape (1,)", "(4,)"]),
    "crash": (crash, ["ZeroDivisionError: the robot fell"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_names_environment_step_and_cause(fault):
    change, words = FAULTS[fault]
    envs = Gymnasium(lambda: Faulty(change)).open(3, seed=0)
    envs.reset()
    envs.step(np.zeros((3, 2)))
    envs.step(np.zeros((3, 2)))
    error = fails(lambda: envs.step(np.zeros((3, 2))), "Faulty", "environment 1", "step 3", *words)
    if fault == "crash":
        assert isinstance(error.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("method", "values", "message"),
    [
        ("step", (np.zeros(3), 0.0, False, {}), "step returned 4 values; return obs, reward, term"),
        ("step", None, "step returned NoneType; return obs, reward, terminated, truncated, info"),
        ("reset", np.zeros(2), "reset returned ndarray; return obs, info"),
    ],
)
def test_too_few_values_are_told_with_what_to_return(method, values, message):
    env = Any()
    made = iter([Any(), env])
    envs = Gymnasium(lambda: next(made)).open(1, 0)
    envs.reset()
    setattr(env, method, lambda *_, **__: values)
    call = envs.reset if method == "reset" else lambda: envs.step(np.zeros((1, 1)))
    fails(call, "Any, environment 0", f": {message}")


def test_a_fault_in_a_dict_names_the_key():
    space = spaces.Dict(body=spaces.Dict(speed=spaces.Box(-1, 1, (2,))), left=spaces.Discrete(2))
    env = Any(space)
    made = iter([Any(space), env])
    envs = Gymnasium(lambda: next(made)).open(1, 0)
    env.reset = lambda seed: ({"body": {"speed": np.float32([0, np.nan])}, "left": 0}, {})
    fails(envs.reset, "obs['body/speed'] is nan", "step 0")
    env.reset = lambda seed: ({"body": {}, "left": 0}, {})
    fails(envs.reset, "KeyError", "speed")


def test_large_but_finite_observations_are_fine():
    env = Any()
    made = iter([Any(), env])
    envs = Gymnasium(lambda: next(made)).open(1, 0)
    env.reset = lambda seed: (np.float32([1e30, -1e30, 0]), {})
    np.testing.assert_array_equal(envs.reset().obs, np.float32([[1e30, -1e30, 0]]))


# --- pictures -------------------------------------------------------------------------------


def test_render_gives_a_frame_per_environment():
    pytest.importorskip("pygame")
    envs = Gymnasium("Pendulum-v1").open(2, 0, render_mode="rgb_array")
    envs.reset()
    frames = envs.render()
    assert [frame.shape for frame in frames] == [(500, 500, 3)] * 2
    assert frames[0].dtype == np.uint8
    envs.close()


def test_render_without_a_mode_says_how():
    envs = Gymnasium("Pendulum-v1").open(1, 0)
    envs.reset()
    fails(envs.render, "Pendulum-v1", "render_mode='rgb_array'")


def test_render_without_pygame_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    envs = Gymnasium("Pendulum-v1").open(1, 0, render_mode="rgb_array")
    envs.reset()
    fails(envs.render, "pip install 'thespis[classic]'")


def test_a_function_that_cannot_pass_a_render_mode_on_is_told():
    env = Gymnasium(lambda: GymTally())
    fails(lambda: env.open(1, 0, render_mode="rgb_array"), "render_mode")
