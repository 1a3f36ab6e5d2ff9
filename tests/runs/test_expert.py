"""Runs that imitate: from files, from another run's policy, and that rewards choose nothing."""

import dataclasses
import errno
import json
import os
import shutil
import zipfile
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import thespis
from tests.small import Toy, arguments, differences, stop_at
from thespis.cli import main
from thespis.core import ThespisError
from thespis.engine import population, recorder
from thespis.replay import demonstrations
from thespis.runs import checkpoint, metrics
from thespis.runs.build import build
from thespis.runs.expert import Demonstrations, save
from thespis.tuning import PBT

pytestmark = pytest.mark.usefixtures("kept", "undrawn")

FEW = {"demo_episodes": 4}  # as many rows from a file as from an expert: one program for both


@pytest.fixture(scope="module")
def expert(tmp_path_factory):
    return thespis.train("sac", out=tmp_path_factory.mktemp("expert"), **arguments(steps=200))


@pytest.fixture(scope="module")
def file(expert, tmp_path_factory):
    name = str(tmp_path_factory.mktemp("demos") / "demos.npz")
    main(["demos", str(expert.path), "--episodes", "5", "-o", name, "--json"])
    return name


def imitate(out, demos, **changes):
    return thespis.train("sqil", out=out, **arguments(demos=demos, **(FEW | changes)))


@pytest.fixture(scope="module")
def run(file, tmp_path_factory):
    return imitate(tmp_path_factory.mktemp("run"), file, seeds=(0, 1))


def same(a, b) -> None:
    assert differences(a, b) == []
    assert metrics.differences(a / "metrics.csv", b / "metrics.csv") == []


# --- from a file ----------------------------------------------------------------------------


def test_recording_tells_what_it_wrote(expert, tmp_path, capsys):
    name = str(tmp_path / "x.npz")
    assert main(["demos", str(expert.path), "--episodes", "2", "-o", name, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["demos"], told["steps"], len(told["returns"])) == (name, 400, 2)
    assert [e.reward.sum() for e in demonstrations.load(name)] == pytest.approx(told["returns"])
    assert main(["demos", str(expert.path), "-o", name, "--stochastic", "--seed", "1"]) == 0
    assert "episodes  20" in capsys.readouterr().out
    assert main(["demos", str(expert.path)]) == 2
    assert "name the demonstrations: -o FILE.npz" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_minari_dataset_teaches_what_a_file_does(
    expert, run, file, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    main(["demos", str(expert.path), "--episodes", "5", "-o", "toy/expert", "--json"])
    name, loop = json.loads(capsys.readouterr().out)["demos"], build(run.config)[0]
    kept, shown = (
        Demonstrations(dataclasses.replace(run.config, demos=source), loop)
        for source in (file, name)
    )
    assert shown.checksum == kept.checksum


def test_a_run_remembers_its_demonstrations_by_name_and_checksum(run, file):
    saved = json.loads((run.path / "config.json").read_text())
    assert saved["demos"] == file
    assert saved["demos_checksum"] == demonstrations.checksum(demonstrations.load(file)[:4])


def test_the_policy_is_chosen_by_similarity_and_never_by_reward(run):
    table = run.metrics
    info = checkpoint.manifest(checkpoint.latest(run.path / "best")[0])["info"]
    for m in (0, 1):
        mine = table["member"] == m
        similar = table["eval/similarity"][mine]
        assert info["reward"][m] == np.float32(similar.max())
        assert info["step"][m] == table["step"][mine][similar.argmax()]
    last = [table["eval/similarity"][table["member"] == m][-1] for m in (0, 1)]
    assert run.member("best") == int(np.argmax(last))
    assert run.member("best", "best") == int(np.argmax(info["reward"]))


def test_similarity_is_of_an_episode_that_was_not_learned_from(run, file):
    pieces = build(run.config)
    shown = Demonstrations(run.config, pieces[0])
    held = np.asarray(shown.held_out.ring.rows.obs)[:, 0, 0]
    learned = np.asarray(shown.view.ring.rows.obs)[:, 0, 0]
    episodes = demonstrations.load(file)
    np.testing.assert_array_equal(held, episodes[3].obs)
    np.testing.assert_array_equal(learned, np.concatenate([e.obs for e in episodes[:3]]))
    one = jax.jit(partial(recorder.similarity, pieces[0].algo))
    found = [one(run.frozen(m), shown.held_out) for m in (0, 1)]
    table = run.metrics
    wanted = [table["eval/similarity"][table["member"] == m][-1] for m in (0, 1)]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_a_run_ends_when_its_imitation_gets_no_better(file, tmp_path):
    """Of an actor that never changes, the first evaluation has found the best."""
    run = imitate(tmp_path, file, seeds=(0, 1), actor_lr=0.0, patience=2)
    assert run.status == {"state": "done", "step": 300}
    assert len(set(run.metrics["eval/similarity"][run.metrics["member"] == 0])) == 1


def test_a_single_demonstration_judges_what_it_teaches(run):
    shown = Demonstrations(dataclasses.replace(run.config, demo_episodes=1), build(run.config)[0])
    both = (np.asarray(x.ring.rows.obs) for x in (shown.view, shown.held_out))
    np.testing.assert_array_equal(*both)


def test_stop_and_continue_equals_never_stopped(run, file, tmp_path, monkeypatch):
    stop_at(monkeypatch, 150)
    half = imitate(tmp_path, file, seeds=(0, 1))
    assert half.status["state"] == "stopped"
    same(thespis.resume(half.path, progress=False).path, run.path)


def test_a_full_disk_leaves_the_file_that_was_there(expert, file, tmp_path, monkeypatch, capsys):
    mine = tmp_path / "demos.npz"
    shutil.copy(file, mine)

    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(zipfile.ZipFile, "open", refuse)
    assert main(["demos", str(expert.path), "--episodes", "1", "-o", str(mine)]) == 2
    assert f"cannot write {mine}: No space left on device; free some space" in (
        capsys.readouterr().err
    )
    assert mine.read_bytes() == Path(file).read_bytes()
    assert list(tmp_path.iterdir()) == [mine]


def test_resuming_with_other_demonstrations_is_refused(file, tmp_path, monkeypatch):
    mine = shutil.copy(file, tmp_path / "demos.npz")
    stop_at(monkeypatch, 150)
    half = imitate(tmp_path, str(mine), seeds=(0, 1))
    save(str(mine), demonstrations.load(mine)[1:], build(half.config)[0].env.spec)
    with pytest.raises(ThespisError, match="has changed since .* began .*: restore it"):
        thespis.resume(half.path, progress=False)
    whole = thespis.resume(half.path, demos=file, progress=False)  # they are elsewhere now
    assert whole.status["state"] == "done"


def test_demonstrations_may_be_objects(run, file, tmp_path, monkeypatch):
    stop_at(monkeypatch, 150)
    half = imitate(tmp_path, demonstrations.load(file), seeds=(0, 1))
    with pytest.raises(ThespisError, match="given as an object: pass them as demos"):
        thespis.resume(half.path, progress=False)
    same(thespis.resume(half.path, demos=demonstrations.load(file), progress=False).path, run.path)


@pytest.mark.parametrize(
    ("algo", "changes", "message"),
    [
        ("sqil", {"demos": None}, "sqil learns from demonstrations: give demos"),
        ("sac", {"demos": "x.npz"}, "sac does not learn from demonstrations: leave demos out"),
        ("sqil", {"demos": "gone.npz"}, "gone.npz is not there"),
        ("sqil", {"demo_episodes": 9}, "demo_episodes = 9: .* has 5; give fewer"),
        ("sqil", {"env": "jax:cartpole"}, r"observations have shape \(3,\), but .*\(4,\)"),
        ("sqil", {"env": "jax:cartpole", "demos": "RUN"}, "was trained on .* but env has"),
    ],
)
def test_what_cannot_work_is_refused_and_leaves_nothing(
    expert, file, tmp_path, algo, changes, message
):
    given = {"demos": file, "progress": False} | changes
    given["demos"] = expert.path if given["demos"] == "RUN" else given["demos"]
    with pytest.raises(ThespisError, match=message):
        thespis.train(algo, out=tmp_path, **arguments(**given))
    assert not list(tmp_path.glob("*/*"))


# --- an expert that plays on ----------------------------------------------------------------


def test_an_expert_plays_new_episodes_all_the_time(expert, run):
    config = dataclasses.replace(run.config, demos=str(expert.path))
    shown = Demonstrations(config, build(config)[0])
    first, again, later = (np.asarray(shown.at(t).ring.rows.obs) for t in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, later)
    np.testing.assert_array_equal(np.asarray(shown.at(0).ring.rows.obs), first)


def test_an_expert_and_a_file_give_the_same_kind_of_batch(expert, run, file):
    loop, _ = build(run.config)
    sample, hp, own = (
        jax.jit(loop.algo.sample),
        loop.algo.Hyper(),
        demonstrations.blank(loop.env.spec),
    )

    def batch(source):
        shown = Demonstrations(dataclasses.replace(run.config, demos=source), loop).at(0)
        return sample(own, shown, hp, random.key(0), jnp.int32(0))

    live, kept = batch(str(expert.path)), batch(file)
    shape = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), tree)
    assert shape(live) == shape(kept)
    for b in (live, kept):
        np.testing.assert_array_equal(b.reward[8:], 1)
        assert (np.abs(b.action) <= 1).all()


@pytest.mark.slow
def test_what_an_expert_shows_does_not_depend_on_interruptions(expert, tmp_path, monkeypatch):
    whole = imitate(tmp_path / "whole", str(expert.path))
    stop_at(monkeypatch, 150)
    half = imitate(tmp_path / "half", thespis.load(expert.path))  # an opened run is one by name
    assert half.config.demos == str(expert.path)
    same(thespis.resume(half.path, progress=False).path, whole.path)


def test_python_environments_have_experts_too(tmp_path):
    given = {"env": Toy, "steps": 200, "eval_freq": 100, "updates_per_step": 0}
    expert = thespis.train("sac", out=tmp_path, **arguments(**given))
    run = imitate(tmp_path, expert, **given)
    assert np.isfinite(run.metrics["eval/similarity"]).any()


class Uneven(Toy):
    """Its episodes have 5 to 14 steps, and no time limit is known."""

    def step(self, action):
        obs, reward, *_ = super().step(action)
        return obs, reward, self.time >= 5 + int(10 * self.start), False, {}


def test_what_an_expert_shows_does_not_depend_on_what_it_showed_before(tmp_path):
    """So a resume learns from the same: it begins in the middle, with an expert of its own."""
    few = {"env": Uneven, "steps": 101, "updates_per_step": 0}
    expert = thespis.train("sac", out=tmp_path, **arguments(**few))
    config = dataclasses.replace(expert.config, demos=str(expert.path), demo_episodes=3)
    loop, _ = build(config, Uneven)
    whole, rows = Demonstrations(config, loop), lambda view: np.asarray(view.ring.rows.obs)
    for time in range(4):
        alone = Demonstrations(config, loop).at(time)
        np.testing.assert_array_equal(rows(whole.at(time)), rows(alone))


# --- populations ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fitness", ["eval/similarity", pytest.param("eval/mean_reward", marks=pytest.mark.slow)]
)
def test_a_population_is_tuned_by_similarity_where_the_reward_is_hidden(file, tmp_path, fitness):
    tuner = {"fitness": fitness, "interval": 100, "best": 1, "replaced": 1}
    run = imitate(tmp_path, file, members=2, pbt=tuner, steps=301)
    table, lineage = run.metrics, run.lineage
    assert len(lineage["score"])
    for step, member, score in zip(lineage["step"], lineage["member"], lineage["score"]):
        here = (table["step"] == step) & (table["member"] == member)
        np.testing.assert_allclose(table[fitness][here], score, rtol=1e-4)


def test_populations_without_a_run_have_demonstrations_as_well(run, file):
    loop, _ = build(run.config)
    view, tuner = (
        demonstrations.view(loop.env.spec, demonstrations.load(file)),
        PBT(best=1, replaced=1),
    )
    p = jax.eval_shape(partial(population.begin, loop, tuner, demos=view), jnp.arange(2))
    new = jax.eval_shape(lambda p: population.train(loop, p, 3, demos=view), p)
    assert jax.tree.structure(new) == jax.tree.structure(p)
