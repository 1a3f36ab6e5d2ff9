import json
import sys
import types
from itertools import pairwise

import numpy as np
import pytest

import thespis
from tests.report import pages
from tests.small import arguments
from thespis.errors import ThespisError
from thespis.report.tracking import Tracked, Tracker, allowed
from thespis.runs import metrics
from thespis.runs.callbacks import Callback
from thespis.runs.reporter import Silent

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

    def Image(self, picture):
        return np.asarray(picture)

    def init(self, **given):
        run = types.SimpleNamespace(given=given, rows=[], ended=False, axes=[])
        run.log = run.rows.append
        run.define_metric = lambda name, step_metric: run.axes.append((name, step_metric))
        run.finish = lambda exit_code: vars(run).update(ended=True, exit_code=exit_code)
        self.runs.append(run)
        return run


class FakeTrackio(Fake):
    """Stands for trackio, which is like wandb but for steps, and prints."""

    def init(self, **given):
        run = super().init(**given)
        run.log = lambda values, step: run.rows.append(values | {"global_step": step})
        run.finish = lambda: vars(run).update(ended=True)
        print("* Trackio speaks")
        return run


class FakeMLflow(types.ModuleType):
    """Stands for mlflow: runs by their ids, in experiments by their names."""

    def __init__(self):
        super().__init__("mlflow")
        self.experiments, self.runs = {}, {}
        pair = lambda key, value: (key, value)
        number = lambda key, value, timestamp, step: (step, key, value)
        self.entities = types.SimpleNamespace(Param=pair, Metric=number)
        self.MlflowClient = lambda: self

    def get_experiment_by_name(self, name):
        known = name in self.experiments
        return types.SimpleNamespace(experiment_id=self.experiments[name]) if known else None

    def create_experiment(self, name):
        return self.experiments.setdefault(name, f"e{len(self.experiments)}")

    def create_run(self, experiment, tags, run_name):
        info = types.SimpleNamespace(
            run_id=f"r{len(self.runs)}", experiment_id=experiment, lifecycle_stage="active"
        )
        self.runs[info.run_id] = run = types.SimpleNamespace(
            info=info, name=run_name, tags=tags, params={}, rows=[], images=[], states=[]
        )
        return run

    def get_run(self, identity):
        return self.runs[identity]

    def update_run(self, identity, status):
        self.runs[identity].states.append(status)

    set_terminated = update_run

    def log_batch(self, identity, params=(), metrics=()):
        assert len(params) <= 100
        assert all(len(value) <= 500 for _, value in params)
        self.runs[identity].params |= dict(params)
        self.runs[identity].rows += metrics

    def log_image(self, identity, image, key, step):
        self.runs[identity].images.append((step, key, image.shape))


@pytest.fixture
def wandb(monkeypatch):
    fake = Fake()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


@pytest.fixture
def mlflow(monkeypatch):
    fake = FakeMLflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    return fake


@pytest.fixture
def trackio(monkeypatch):
    fake = FakeTrackio()
    monkeypatch.setitem(sys.modules, "trackio", fake)
    return fake


class Painter(Callback):
    every = 200

    def on_step(self, training):
        training.log("mine?/loss", 1.0)
        training.log_image("mine/image", np.zeros((4, 6)), member=1)
        training.log_histogram("mine/histogram", np.arange(10), member=1)


def test_every_member_is_a_run_of_one_group_and_stays_the_same_when_it_goes_on(
    wandb, mlflow, trackio, tmp_path, capsys
):
    """Of all trackers at once."""
    named = {"tags": ("a", "b"), "notes": "why", "log_keys": ("brax",)}
    projects = {"wandb": "stage", "mlflow": "scene", "trackio": "act"}
    given = arguments(seeds=(0, 7), updates_per_step=0, **named, **projects)
    run = thespis.train("sac", out=tmp_path, callbacks=[Painter()], **given)
    first, second = wandb.runs
    names = [f"sac_{run.path.name}_seed{seed}" for seed in (0, 7)]
    assert [r.given["name"] for r in wandb.runs] == names
    assert first.given["group"] == second.given["group"]
    assert first.given["project"] == "stage"
    assert first.given["config"]["seed"] == 0
    assert (first.given["tags"], first.given["notes"]) == (("a", "b"), "why")
    assert first.axes == [("*", "global_step")]
    assert [row["global_step"] for row in first.rows] == [100, 200, 300, 400]
    rewards = run.metrics["eval/mean_reward"]
    rows = lambda followed: [row for row in followed.rows if "eval/episode_reward" in row]
    assert [r["eval/episode_reward"] for r in rows(second)] == pytest.approx(rewards[1::2])
    assert "eval/mean_reward" not in first.rows[0]
    assert all(r.ended and r.exit_code == 0 for r in wandb.runs)
    assert json.dumps(first.rows)  # plain numbers
    images = [row["mine/image"].shape for row in second.rows if "mine/image" in row]
    assert images == [(4, 6, 1)] * 2

    assert list(mlflow.experiments) == ["scene"]
    one, two = mlflow.runs.values()
    assert [one.name, two.name] == names
    assert one.tags == two.tags
    assert one.tags["group"] == first.given["group"]
    assert (one.tags["tags"], one.tags["mlflow.note.content"]) == ("a, b", "why")
    assert (one.params["env"], one.params["seed"], two.params["seed"]) == ("jax:pendulum", "0", "7")
    assert float(one.params["hp.gamma"]) == run.config.hp["gamma"]
    told = lambda wanted: [(step, x) for step, name, x in two.rows if name == wanted]
    assert [step for step, _ in told("eval/episode_reward")] == [100, 200, 300, 400]
    assert [x for _, x in told("eval/episode_reward")] == pytest.approx(rewards[1::2])
    assert told("mine_/loss") == [(200, 1.0), (400, 1.0)]
    assert one.images == []
    assert two.images == [(step, "mine/image", (4, 6, 1)) for step in (200, 400)]
    assert [r.states for r in (one, two)] == [["FINISHED"]] * 2

    assert [r.given["project"] for r in trackio.runs] == ["act", "act"]
    assert [r.given["group"] for r in trackio.runs] == [first.given["group"]] * 2
    assert all(r.given["name"].startswith(n) for r, n in zip(trackio.runs, names, strict=True))
    assert rows(trackio.runs[1]) == rows(second)
    images = [row["mine/image"].shape for row in trackio.runs[1].rows if "mine/image" in row]
    assert images == [(4, 6)] * 2
    counts = [row["mine/histogram"][0] for row in trackio.runs[1].rows if "mine/histogram" in row]
    assert [sum(x) for x in counts] == [10, 10]
    assert all(r.ended for r in trackio.runs)
    assert capsys.readouterr().out == ""  # whatever the library prints

    thespis.resume(run.path, steps=500, progress=False, callbacks=[])
    again = wandb.runs[2:]
    assert [r.given["id"] for r in again] == [first.given["id"], second.given["id"]]
    assert first.given["id"] != second.given["id"]
    assert [row["global_step"] for row in again[0].rows] == [500]
    assert len(mlflow.runs) == 2
    assert one.states == ["FINISHED", "RUNNING", "FINISHED"]
    assert {step for step, *_ in one.rows} == {100, 200, 300, 400, 500}
    assert [r.given["name"] for r in trackio.runs[2:]] == [
        r.given["name"] for r in trackio.runs[:2]
    ]
    assert [row["global_step"] for row in trackio.runs[2].rows] == [500]


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


def test_what_makes_a_run_trusted_is_not_told(wandb, tmp_path):
    folder = pages.run(tmp_path / "run", identity="secret")
    config = types.SimpleNamespace(algo="sac", seeds=(0,), tags=(), notes=None)
    Tracker("wandb", "stage").begin(config, folder)
    (told,) = wandb.runs
    assert told.given["config"]["hp"]["gamma"] == 0.99
    assert "identity" not in told.given["config"]


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_without_the_library_one_line_says_what_to_install(name, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ThespisError, match=rf"^{name} = stage .* pip install 'thespis\[{name}\]'$"):
        thespis.train("sac", out=tmp_path, **arguments(**{name: "stage"}))
    assert not list(tmp_path.rglob("config.json"))  # it never began


def test_who_is_not_logged_in_is_told_so_in_one_line(wandb, mlflow, monkeypatch, tmp_path):
    """What another tracker has begun is ended."""

    def refuse(*given, **named):
        raise RuntimeError("No API key configured.\nUse `wandb login`.")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(ThespisError, match=r"^wandb = stage: No API key configured. Use `wandb lo"):
        thespis.train("sac", out=tmp_path, **arguments(wandb="stage"))
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setattr(mlflow, "create_run", refuse)
    with pytest.raises(ThespisError, match=r"^mlflow = scene: No API key"):
        thespis.train("sac", out=tmp_path, **arguments(wandb="stage", mlflow="scene"))
    assert [(r.ended, r.exit_code) for r in wandb.runs] == [(True, 1)]


class Listener(Silent):
    """A reporter that only remembers notes."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def test_a_tracker_that_fails_does_not_end_the_run(mlflow, monkeypatch):
    listener = Listener()
    tracker = Tracker("mlflow", "scene")
    calls = []

    def lost(step, values, histograms):
        calls.append(step)
        raise ConnectionError("no route\nto host")

    tracker.runs = [types.SimpleNamespace(log=lost, end=lambda failed: calls.append("end"))]
    watcher = Tracked(listener, [tracker])
    watcher.names = {}
    for step in (100, 200):
        watcher.row(step, [{"a": 1.0}])
    watcher.end()
    assert calls == [100]
    assert listener.notes == [
        "mlflow = scene failed and is not used any more; metrics.csv still has all "
        "metrics: no route to host"
    ]


@pytest.mark.parametrize(
    ("name", "theirs"), [("a/b c-d.e", "a/b c-d.e"), ("/../a?//b:", "a_/b_"), ("..", "_")]
)
def test_names_that_mlflow_refuses_are_changed(name, theirs):
    assert allowed(name) == theirs


@pytest.mark.slow  # the libraries are large, and not what most people have
@pytest.mark.filterwarnings("default")  # their own
def test_mlflow_itself_keeps_the_runs_here(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    given = arguments(seeds=(0, 7), updates_per_step=0, mlflow="scene", tags=("a",))
    run = thespis.train("sac", out=tmp_path, callbacks=[Painter()], **given)
    thespis.resume(run.path, steps=500, progress=False, callbacks=[])
    client = mlflow.MlflowClient()
    found = client.search_runs([client.get_experiment_by_name("scene").experiment_id])
    assert {r.data.params["seed"] for r in found} == {"0", "7"}
    assert {r.info.status for r in found} == {"FINISHED"}
    (second,) = [r for r in found if r.data.params["seed"] == "7"]
    history = client.get_metric_history(second.info.run_id, "eval/mean_reward")
    mine = run.metrics["member"] == 1
    assert [x.step for x in history] == [100, 200, 300, 400, 500]
    rewards = run.metrics["eval/mean_reward"][mine]
    assert [x.value for x in history] == pytest.approx(rewards)
    assert len(client.list_artifacts(second.info.run_id, "images")) == 4  # two, also small


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_trackio_itself_keeps_the_runs_here(tmp_path, monkeypatch):
    storage = pytest.importorskip("trackio.sqlite_storage")
    for name in ("trackio.sqlite_storage", "trackio.utils", "trackio.media.utils"):
        monkeypatch.setattr(f"{name}.TRACKIO_DIR", tmp_path / "trackio", raising=False)
    given = arguments(seeds=(0, 7), updates_per_step=0, trackio="scene")
    run = thespis.train("sac", out=tmp_path, **given)
    thespis.resume(run.path, steps=500, progress=False)
    kept = storage.SQLiteStorage
    names = sorted(kept.get_runs("scene"))
    assert len(names) == 2
    rows = kept.get_logs("scene", names[1])
    mine = run.metrics["member"] == 1
    assert [row["step"] for row in rows] == [100, 200, 300, 400, 500]
    rewards = [row["eval/mean_reward"] for row in rows]
    assert rewards == pytest.approx(run.metrics["eval/mean_reward"][mine])
