"""benchmarks/accelerator.py measures whatever device there is, and says which it was."""

import json

import jax
import pytest

from benchmarks import accelerator
from thespis.runs import estimate


@pytest.mark.thorough
def test_figures_are_filed_with_their_device_and_versions(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "SECONDS", 0.01)
    monkeypatch.setattr(accelerator, "QUICK", accelerator.QUICK | {"dtype": ("bfloat16",)})
    found = json.loads(accelerator.main(["--quick", "-o", str(tmp_path / "x.json")]).read_text())
    assert (found["platform"], found["device"]) == ("cpu", jax.devices()[0].device_kind)
    assert found["versions"]["jax"] == jax.__version__
    [cell] = found["cells"]
    assert (cell["members"], cell["dtype"]) == (2, "bfloat16")
    assert cell["updates_per_second"] == cell["steps_per_second"] > 0  # one for each
    assert cell["steps_per_second_without_updates"] > 0


def test_without_the_device_nothing_is_filed(tmp_path):
    with pytest.raises(SystemExit, match="device = gpu: JAX has started on cpu"):
        accelerator.main(["--quick", "--device", "gpu", "-o", str(tmp_path / "x.json")])
    assert not list(tmp_path.iterdir())
