"""Resets the networks of members at the steps that their algorithm sets."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

import numpy as np

from thespis.core import Resetting, capability
from thespis.engine.loop import Learner, Loop
from thespis.runs.config import Config
from thespis.runs.metrics import Note
from thespis.xla.multihost import collective
from thespis.xla.placement import MEMBERS, SHARED, spread
from thespis.xla.program_cache import compiled


class Resets:
    """The iterations at which members are reset, and the program that resets them."""

    def __init__(self, config: Config, loop: Loop):
        self.config, self.loop = config, loop
        resetting = capability(loop.algo, Resetting)
        steps = resetting.resets if resetting else ()
        self.iterations = tuple(config.iterations(step) for step in steps)

    def __call__(self, x: Learner, hps: Any, seeds: Any, note: Note) -> Learner:
        """Returns the learner, reset if this iteration is one of those."""
        for number, iteration in enumerate(self.iterations):
            if iteration == x.clock.now:
                state = collective(self.program, x.state, hps, seeds, np.int32(number))
                x = dataclasses.replace(x, state=state)
                count = f"{number + 1} of {len(self.iterations)}"
                note(f"step {iteration * self.config.envs}: {self.config.algo} is reset ({count})")
        return x

    @cached_property
    def program(self):
        loop, in_specs = self.loop, (MEMBERS, MEMBERS, MEMBERS, SHARED)
        reset = spread(loop.mesh, loop.reset, in_specs, MEMBERS)
        return compiled(reset, dataclasses.replace(loop, env=None))
