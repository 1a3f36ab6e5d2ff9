"""How runs that cannot begin, or break off, leave their folder."""

import numpy as np
import pytest

import thespis
from tests.small import arguments
from thespis.errors import ThespisError
from thespis.launch import wants_ray
from thespis.runs import checkpoint, config_file
from thespis.runs.process import alone, busy

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


def test_errors_before_the_first_step_leave_no_folder(tmp_path):
    for fault in ("Bounds", "Discrete", "Reset"):
        with pytest.raises(ThespisError):
            thespis.train("sac", f"tests.small:Toy{fault}-v0", out=tmp_path, progress=False)
        assert not list(tmp_path.glob("*/*"))


def test_a_folder_in_which_another_process_begins_is_left_to_it(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with alone(folder), pytest.raises(ThespisError, match="is being trained by another process"):
        thespis.train("sac", folder=folder, **arguments())
    assert folder.is_dir()
    (folder / "config.json").touch()
    with pytest.raises(ThespisError, match="it is not empty; name another, or resume it"):
        thespis.train("sac", folder=folder, **arguments())
    assert (folder / "config.json").exists()


def test_nobody_else_has_a_folder_before_anything_is_in_it(tmp_path, monkeypatch):
    def note(folder, *rest):
        raise ThespisError("busy" if busy(folder) else "free")

    monkeypatch.setattr(config_file, "write", note)
    with pytest.raises(ThespisError, match="busy"):
        thespis.train("sac", out=tmp_path, **arguments())
    assert not list(tmp_path.glob("*/*"))


def test_an_error_in_the_middle_keeps_what_was_saved(tmp_path):
    given = arguments(env="tests.small:ToyRaise-v0", checkpoint_freq=10)
    with pytest.raises(ThespisError) as caught:
        thespis.train("sac", out=tmp_path, **given)
    folder = tmp_path / "sac" / "ToyRaise-v0_1"
    told = str(caught.value)
    assert "ToyRaise-v0, environment 0, step" in told
    assert "RuntimeError: the curtain fell" in told
    step = int(checkpoint.latest(folder / "checkpoints")[0].name)
    assert step in (10, 20)
    assert told.endswith(f"; saved up to step {step}: thespis resume {folder}")
    assert thespis.load(folder).status["state"] == "failed"
    assert np.isfinite(thespis.load(folder).policy()(np.zeros(3))).all()


def test_an_error_before_anything_was_saved_promises_nothing(tmp_path):
    given = arguments(env="tests.small:ToyRaise-v0", checkpoint_freq=1000)
    with pytest.raises(ThespisError, match="the curtain fell$"):
        thespis.train("sac", out=tmp_path, **given)


@pytest.mark.parametrize("value", [3.5, np.array([1, 2]), len])
def test_ray_is_an_address_or_true(value):
    said = (True, "head:6379", None, False, "")
    assert list(map(wants_ray, said)) == [True, True, False, False, False]
    with pytest.raises(ThespisError, match="ray = .*: give True, or the address of a cluster"):
        wants_ray(value)
