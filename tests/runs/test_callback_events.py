"""Events reach callbacks also where others fail, and what they left is saved and restored."""

import pytest

import thespis
from tests.runs.test_callbacks import (
    JAX,
    Clockwork,
    Everything,
    Slope,
    Stopper,
    same,
    stopped,
    train,
)
from thespis.core import ThespisError
from thespis.runs.callback_events import Memory, oversights
from thespis.runs.callbacks import Callback

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


@pytest.mark.thorough
def test_a_kill_after_a_new_column_leaves_no_trace_of_it(tmp_path, capsys):
    whole = train(tmp_path, JAX, Everything(), updates_per_step=0)
    run = stopped(tmp_path, 110, JAX, Everything(), updates_per_step=0)
    late = (whole.path / "metrics.csv").read_bytes()  # as if it had been killed at the end
    (run.path / "metrics.csv").write_bytes(late)
    capsys.readouterr()
    thespis.resume(run.path, env=Slope(), callbacks=[Everything()], progress=False)
    assert "no more" not in capsys.readouterr().err
    assert not list(run.path.glob("*damaged*"))
    same(whole.path, run.path)


def test_failures_of_others_are_told_too(tmp_path):
    class Breaking(Clockwork):
        def step(self, action):
            if self.time == 5:
                raise RuntimeError("the curtain fell")
            return super().step(action)

    stopper = Stopper("on_exchange")
    with pytest.raises(ThespisError, match="the curtain fell"):
        train(tmp_path, {"env": Breaking}, stopper)
    assert stopper.ends == [(0, "failed")]


class Forgetful(Callback):
    """Has methods as Stable-Baselines3 names them, and no `every`."""

    def on_step(self, training): ...

    def _on_step(self): ...

    def on_eval(self, training): ...


def test_a_state_must_be_plain_data(tmp_path, capsys):
    class Opaque(Callback):
        def state(self):
            return object()

        def restore(self, state): ...

    with pytest.raises(ThespisError, match="callback Opaque: state raised TypeError"):
        train(tmp_path, JAX, Opaque(), Forgetful())
    told = capsys.readouterr().err
    assert all(f"note: callback Forgetful: {note}\n" in told for note in oversights(Forgetful()))


def test_methods_that_nothing_calls_are_noted():
    assert oversights(Forgetful()) == [
        "no event calls _on_step; did you mean on_step?",
        "no event calls on_eval; did you mean on_evaluation or on_end?",
        "on_step is not called without `every`, the steps between its calls",
    ]
    assert oversights(Stopper("on_end")) == oversights(Everything()) == oversights(Callback()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"started": [5]},
        {"untraced": [["gamma"]]},
        {"columns": ["a,b"]},
        {"columns": ["a", "step"]},
        {"pending": {"a": "text"}},
        {"pending": {"a": [None, "text"]}},
        {"pending": {"b": [1.0]}},
        {"env": []},
    ],
)
def test_what_a_checkpoint_says_of_callbacks_is_checked(wrong):
    fine = {"started": ["Mine"], "states": {}, "pending": {"a": [1.0, None]}, "columns": ["a"]}
    fine |= {"env": {"speed": 1}, "untraced": ["gamma"]}
    assert Memory.read(fine).untraced == ["gamma"]
    with pytest.raises(ThespisError, match="its data of callbacks is invalid"):
        Memory.read(fine | wrong)
