"""Environments for collectors, and a Ray that is none. Their processes import this module."""

import os
import signal
import time

import cloudpickle
import gymnasium
import numpy as np
from gymnasium import spaces


class Lives(gymnasium.Env):
    """Episodes of random lengths, up to 5 steps.

    Observes [steps, length, name of the episode, first number of the last action].
    """

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Box(np.float32([-2, -1]), np.float32([6, 1]))
    fault, tempo = "", 1.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.length = 0, int(self.np_random.integers(1, 8))
        self.name, self.first = self.np_random.uniform(), self.np_random.uniform()
        return self.seen(0.0), {}

    def seen(self, shown):
        return np.float32([self.steps, self.length, self.name, shown])

    def step(self, action):
        self.steps += 1
        if self.fault and self.name > 0.9:
            raise RuntimeError("the curtain\nfell")
        return self.seen(action[0]), 1.0, self.steps >= self.length, self.steps >= 5, {}


class Falling(Lives):
    """Raises in an episode whose name is above 0.9."""

    fault = "yes"


class Meeting(Lives):
    """Waits in every step for those of three other processes, without end of episodes."""

    def step(self, action):
        self.steps += 1
        folder = os.environ["JAX_FAR_MARK"]
        open(f"{folder}/{self.steps}-{os.getpid()}", "w").close()
        end = time.monotonic() + 600
        while sum(name.startswith(f"{self.steps}-") for name in os.listdir(folder)) < 4:
            assert time.monotonic() < end, "the others do not step"
            time.sleep(0.01)
        return self.seen(action[0]), 1.0, False, False, {}


class Deadly(Lives):
    """Ends its process at its 15th step, if nobody has done so before in this folder."""

    count = 0

    def step(self, action):
        self.count += 1
        if self.count == 15:
            try:
                os.close(os.open(os.environ["JAX_FAR_MARK"], os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        return super().step(action)


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class Exceptions:
    RayError, RayTaskError = RayError, RayTaskError


class Ref:
    def __init__(self, ask):
        self.ask, self.done = ask, False


class Actor:
    """Answers in order, when it is waited for; dead ones answer nothing more."""

    def __init__(self, ray, thing):
        self.ray, self.thing, self.dead, self.queue = ray, thing, False, []

    def __getattr__(self, name):
        class Method:
            @staticmethod
            def remote(*args):
                values = [x.value if isinstance(x, Ref) and x.done else x for x in args]
                ref = Ref(lambda: getattr(self.thing, name)(*values))
                ref.actor, ref.name = self, name
                self.queue.append(ref)
                self.ray.calls.append((self, name, args))
                return ref

        return Method

    def answer(self, ref):
        while not ref.done:
            first = self.queue.pop(0)
            if first.name == "collect" and self.ray.die(self):
                self.dead = True
            if first.name == "begin" and self.ray.unborn:
                self.ray.unborn, self.dead = self.ray.unborn - 1, True
            if self.dead:
                raise RayError("the actor died\nand more")
            first.value, first.done = first.ask(), True
        return ref.value


class FakeRay:
    """Ray's functions in one process. `deaths` are numbers of blocks whose collectors die."""

    exceptions, cloudpickle = Exceptions, cloudpickle
    unborn = 0  # how many collectors still die before they have begun

    def __init__(self, deaths=()):
        self.deaths, self.blocks, self.calls, self.killed = set(deaths), 0, [], []

    def die(self, actor):
        self.blocks += 1
        return self.blocks - 1 in self.deaths

    def remote(self, cls):
        ray = self

        class Remote:
            def options(self, **options):
                return self

            def remote(self, settings, *args):
                return Actor(ray, cls({}, *args))

        return Remote()

    def put(self, value):
        ref = Ref(None)
        ref.value, ref.done = value, True
        return ref

    def get(self, refs):
        if isinstance(refs, list):
            return [self.get(ref) for ref in refs]
        return refs.value if refs.done else refs.actor.answer(refs)

    def wait(self, refs, num_returns, timeout):
        for ref in refs:
            self.get(ref)

    def kill(self, actor, no_restart):
        self.killed.append(actor)
