import json
import sys
import types
from itertools import pairwise

import pytest

import thespis
from tests.small import arguments
from thespis.errors import ThespisError
from thespis.runs import metrics

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


class Fake(types.ModuleType):
    """Stands for wandb: keeps what it is told."""

    def __init__(self):
        super().__init__("wandb")
        self.runs = []

    def Settings(self, **given):
        return given

    def Histogram(self, np_histogram):
        return np_histogram

    def init(self, **given):
        run = types.SimpleNamespace(given=given, rows=[], ended=False, axes=[])
        run.log = run.rows.append
        run.define_metric = lambda name, step_metric: run.axes.append((name, step_metric))
        run.finish = lambda: setattr(run, "ended", True)
        self.runs.append(run)
        return run


@pytest.fixture
def wandb(monkeypatch):
    fake = Fake()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def test_every_member_is_a_run_of_one_group_and_stays_the_same_when_it_goes_on(wandb, tmp_path):
    named = {"tags": ("a", "b"), "notes": "why"}
    given = arguments(seeds=(0, 7), wandb="stage", log_keys=("brax",), updates_per_step=0, **named)
    run = thespis.train("sac", out=tmp_path, **given)
    first, second = wandb.runs
    assert [r.given["name"] for r in wandb.runs] == [f"sac_{run.path.name}_seed{s}" for s in (0, 7)]
    assert first.given["group"] == second.given["group"]
    assert first.given["project"] == "stage"
    assert first.given["config"]["seed"] == 0
    assert (first.given["tags"], first.given["notes"]) == (("a", "b"), "why")
    assert first.axes == [("*", "global_step")]
    assert [row["global_step"] for row in first.rows] == [100, 200, 300, 400]
    rewards = run.metrics["eval/mean_reward"]
    told = [row["eval/episode_reward"] for row in second.rows]
    assert told == pytest.approx(rewards[1::2])
    assert "eval/mean_reward" not in first.rows[0]
    assert all(r.ended for r in wandb.runs)
    assert json.dumps(first.rows)  # plain numbers

    thespis.resume(run.path, steps=500, progress=False)
    again = wandb.runs[2:]
    assert [r.given["id"] for r in again] == [first.given["id"], second.given["id"]]
    assert first.given["id"] != second.given["id"]
    assert [row["global_step"] for row in again[0].rows] == [500]


@pytest.mark.slow  # runs/test_trainer.py looks at the same rows in their file
def test_histograms_come_with_the_rows_of_their_member(wandb, tmp_path):
    """Of TAAC: what histograms.csv has, and none where nothing was counted."""
    tiny = {"hidden": (4,), "critics": 1, "n_step": 1, "embed": False}
    given = arguments(steps=200, seeds=(0, 7), wandb="stage", **tiny)
    run = thespis.train("taac", out=tmp_path, **given)
    table = metrics.read(run.path / "histograms.csv")
    for member, followed in enumerate(wandb.runs):
        first, second = followed.rows
        assert "train/switch_probabilities" not in first  # there was no update yet
        counts, edges = second["rollout/actions/0"]
        names = [f"rollout/actions/0:{a:g}:{b:g}" for a, b in pairwise(edges)]
        mine = (table["member"] == member) & (table["step"] == 200)
        assert list(counts) == [table[name][mine].item() for name in names]
        assert (edges[0], edges[-1], sum(counts)) == (-1, 1, 100)
        assert sum(second["train/switch_probabilities"][0]) > 0


def test_without_the_library_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ThespisError, match=r"pip install 'thespis\[wandb\]'"):
        thespis.train("sac", out=tmp_path, **arguments(wandb="stage"))
    assert not list(tmp_path.rglob("config.json"))  # it never began


def test_who_is_not_logged_in_is_told_so_in_one_line(wandb, monkeypatch, tmp_path):
    def refuse(**given):
        raise RuntimeError("No API key configured.\nUse `wandb login`.")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(ThespisError, match=r"^wandb = stage: No API key configured. Use `wandb lo"):
        thespis.train("sac", out=tmp_path, **arguments(wandb="stage"))
