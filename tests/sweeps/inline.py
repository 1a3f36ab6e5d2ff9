"""A sweep whose jobs run in this process, by programs that are kept: quick, and easy to stop."""

import pytest

import tests.small  # noqa: F401, keeps programs
import thespis
from thespis.errors import ThespisError
from thespis.sweeps import executors, job
from thespis.sweeps import folder as folders

TINY = {
    "steps": 200,
    "hidden": (8, 8),
    "batch_size": 16,
    "buffer_size": 200,
    "learning_starts": 100,
    "updates_per_step": 0,
    "eval_freq": 100,
    "eval_episodes": 1,
    "checkpoint_freq": 100,
}


class Inline:
    """Runs a job as it is started; `started` are the names of all."""

    slots = 1

    def __init__(self, folder):
        self.folder, self.started, self.codes = folder, [], {}

    def start(self, name):
        self.started.append(name)
        try:
            self.codes[name] = job.run(self.folder, name)
        except ThespisError as error:
            folders.note_failure(self.folder, name, str(error))
            self.codes[name] = 2

    def ended(self):
        codes, self.codes = self.codes, {}
        return codes

    def stop(self):
        pass

    def close(self):
        pass


@pytest.fixture
def inline(monkeypatch):
    """Jobs run in this process -> a list of their executors, one per sweep."""
    made = []

    def executor_of(name, folder, *given):
        made.append(Inline(folder))
        return made[-1]

    monkeypatch.setattr(executors, "executor_of", executor_of)
    return made


def sweep(out, algo="sac", **changes):
    given = {"env": "jax:pendulum", "seeds": (0, 1), **TINY, **changes}
    return thespis.sweep(algo, out=out, progress=False, **given)
