"""A population that tunes itself: rounds, lineage, resume, healing, and the winner's schedule."""

import dataclasses
import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import thespis
from tests.small import Toy, arguments, arrays, differences, stop_at, words
from thespis import tuning
from thespis.core import ThespisError
from thespis.runs import checkpoint, config_file, directory, lineage, metrics, trainer
from thespis.runs import config as configs
from thespis.runs.build import build
from thespis.runs.reporter import Silent
from thespis.tuning import hyper

pytestmark = pytest.mark.usefixtures("kept", "undrawn")

POPULATION = {"members": 4, "pbt": {"interval": 100}, "eval_freq": 200}


def population(**changes):
    return arguments(**(POPULATION | changes))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One population that was never disturbed; members exchange at 200 and 300."""
    return thespis.train("sac", out=tmp_path_factory.mktemp("whole"), **population())


def same(a, b) -> None:
    """Two populations went the same way."""
    assert differences(a, b) == []
    assert metrics.differences(a / "metrics.csv", b / "metrics.csv") == []
    assert (a / "lineage.csv").read_bytes() == (b / "lineage.csv").read_bytes()


# --- rounds ---------------------------------------------------------------------------------


def test_the_lineage_has_a_row_per_member_and_exchange(whole):
    table, log = whole.lineage, whole.metrics
    assert table["step"].tolist() == [200] * 4 + [300] * 4  # not in warm-up, not after the end
    assert table["member"].tolist() == [0, 1, 2, 3] * 2
    replaced = table["parent"] != table["member"]
    assert [replaced[:4].sum(), replaced[4:].sum()] == [1, 1]
    for i in range(8):
        row = (log["step"] == table["step"][i]) & (log["member"] == table["member"][i])
        assert table["score"][i] == pytest.approx(log["eval/mean_reward"][row][0])
    worst = table["score"][:4].argmin()
    assert replaced[:4].tolist() == [m == worst for m in range(4)]
    assert table["score"][int(table["parent"][worst])] == table["score"][:4].max()
    assert table["age"].tolist() == [200] * 4 + [100 if replaced[m] else 300 for m in range(4)]


def test_only_copies_change_their_hyper_parameters_and_stay_in_the_prior(whole):
    table, known = whole.lineage, hyper.declared(thespis.SAC.Hyper)
    replaced = table["parent"] != table["member"]
    names = [name.removeprefix("after/") for name in table if name.startswith("after/")]
    assert set(names) <= set(known)
    assert "gamma" in names
    for name in names:
        before, after = table[f"before/{name}"], table[f"after/{name}"]
        assert np.array_equal(before[~replaced], after[~replaced])
        low, high = known[name].prior.limits
        assert ((low * (1 - 1e-6) <= after) | (after >= low)).all()
        assert (after <= high + 1e-6).all()
        assert len(set(before[:4])) == 4
        for i in np.flatnonzero(replaced):  # neither what it had nor what its parent has
            assert after[i] not in (before[i], before[i - i % 4 + int(table["parent"][i])])


def test_the_values_that_updates_used_are_logged_beside_those_asked_for(whole):
    table, log = whole.lineage, whole.metrics
    names = [name.removeprefix("after/") for name in table if name.startswith("after/")]
    for name in names:
        assert np.array_equal(log[f"hparams/{name}"], log[f"hparams_asked/{name}"])
        now = {int(m): x for m, x in zip(table["member"], table[f"after/{name}"], strict=True)}
        last = log["step"] == 400
        assert log[f"hparams/{name}"][last].tolist() == [now[m] for m in range(4)]
        first = (log["step"] == 200) & (log["member"] == 0)
        assert log[f"hparams/{name}"][first] == table[f"before/{name}"][0]


def test_a_value_that_is_not_the_one_asked_for_is_an_error(tmp_path):
    x = started(tmp_path, population(steps=300))
    x.tuning.asked["gamma"] = x.tuning.asked["gamma"] + np.float32([0, 0, 0, 0.5])
    with pytest.raises(ThespisError, match=r"member 3, step \d+: updates used gamma.* asks for"):
        x.run([])
    x.close()


def test_a_copy_differs_from_its_parent_in_all_but_what_it_inherits(whole, tmp_path, monkeypatch):
    """At the exchange it has the parent's networks, and its own replay and start states."""
    copy = shutil.copytree(whole.path, tmp_path / "run")
    shutil.rmtree(checkpoint.latest(copy / "checkpoints")[0])  # back to 300
    run = thespis.load(copy)
    x = trainer.Trainer(run.config, run.parts, copy, Silent())
    x.restore(copy)
    before = jax.device_get(x.learner)
    x.prepare()
    after = jax.device_get(x.learner)
    x.close()
    (child,) = np.flatnonzero(x.tuning.parents != np.arange(4))
    parent = x.tuning.parents[child]
    for old, new in zip(jax.tree.leaves(before.state), jax.tree.leaves(after.state), strict=True):
        assert np.array_equal(new[child], old[parent])
        assert np.array_equal(np.delete(new, child, 0), np.delete(old, child, 0))
    assert np.array_equal(before.replay.rows.obs, after.replay.rows.obs)
    assert not np.array_equal(after.world.arrived.obs[child], after.world.arrived.obs[parent])
    assert (np.asarray(before.metric_sums.fault) == -1).all()


def test_what_is_given_one_per_member_stays_with_its_number_and_is_in_the_lineage(tmp_path):
    each, all_alike = [0.9, 0.92, 0.94, 0.96], 0.01
    given = population(pbt={"interval": 100, "replaced": 2}, gamma=each, tau=all_alike)
    run = thespis.train("sac", out=tmp_path, **given)
    table, log = run.lineage, run.metrics
    assert (table["parent"] != table["member"]).sum() == 4
    for when in ("before", "after"):
        assert table[f"{when}/gamma"].reshape(-1, 4).tolist() == [each] * 2
    assert "after/tau" not in table  # which never differs
    for column in ("hparams/gamma", "hparams_asked/gamma"):
        assert (log[column].reshape(-1, 4) == each).all()
    assert set(log["hparams/tau"]) == {all_alike}
    again = thespis.resume(run.path, steps=500, progress=False)
    assert again.lineage["after/gamma"][-4:].tolist() == each
    assert (again.lineage["parent"] != again.lineage["member"]).sum() == 6


@pytest.mark.parametrize("tuner", ["random", pytest.param("none", marks=pytest.mark.slow)])
def test_controls_never_exchange(tmp_path, tuner):
    given = population(pbt=None, tuner=tuner, **{"pbt.interval": 100})
    run = thespis.train("sac", out=tmp_path, **given)
    table = run.lineage
    assert table["step"].tolist() == [200] * 4 + [300] * 4
    assert np.array_equal(table["parent"], table["member"])
    rates = run.metrics["hparams/critic_lr"].reshape(-1, 4)
    assert (rates == rates[0]).all()
    assert len(set(rates[0])) == (4 if tuner == "random" else 1)
    assert run.config.tuner == tuner


@pytest.mark.slow
def test_skills_are_tuned_by_what_they_are_worth(tmp_path):
    """Which no member can raise by the scale of its predictions, unlike its own reward."""
    given = population(env="jax:pointmass", alternatives=5, pbt={"interval": 100, "replaced": 2})
    run = thespis.train("dads", out=tmp_path, **given)
    table, log = run.lineage, run.metrics
    assert run.config.tuning.fitness == "eval/skill_dependence"
    for i in range(8):
        row = (log["step"] == table["step"][i]) & (log["member"] == table["member"][i])
        assert table["score"][i] == pytest.approx(log["eval/skill_dependence"][row][0])
    best = checkpoint.manifest(checkpoint.latest(run.path / "best")[0])["info"]["reward"]
    worth = log["eval/skill_dependence"].reshape(-1, 4)
    assert best == pytest.approx(np.nanmax(worth, 0).tolist())
    assert run.member("best") == np.nanargmax(worth[-1])


def test_the_fitness_may_be_any_metric(tmp_path, monkeypatch):
    fields = {"interval": 100, "fitness": "train/target_value"}
    run = thespis.train("sac", out=tmp_path, **population(pbt=fields))
    table, log = run.lineage, run.metrics
    assert table["step"].tolist() == [200] * 4 + [300] * 4
    assert table["score"][:4].tolist() == log["train/target_value"][log["step"] == 200].tolist()
    monkeypatch.setattr("thespis.runs.session.Session.__init__", None)  # nothing is compiled
    for wrong, hint in (("eval/reward", "did you mean eval"), ("zzz", "there is time/trans")):
        with pytest.raises(ThespisError, match=f"pbt.fitness = {wrong} is not a metric; {hint}"):
            thespis.train("sac", out=tmp_path, **population(pbt={"fitness": wrong}))
    assert len(list(tmp_path.glob("sac/*"))) == 1


@pytest.mark.slow  # engine/test_population.py has the loop that shares
def test_members_may_share_one_replay(whole, tmp_path):
    run = thespis.train(
        "sac", out=tmp_path, **population(pbt={"interval": 100, "replay": "shared"})
    )
    assert run.config.devices == 1
    assert (run.lineage["parent"] != run.lineage["member"]).sum() == 2
    assert differences(run.path, whole.path)  # they learned from others too


def test_what_is_given_is_not_tuned(tmp_path):
    run = thespis.train("sac", out=tmp_path, **population(gamma=0.9, steps=300))
    assert "after/gamma" not in run.lineage
    assert (run.metrics["hparams/gamma"] == 0.9).all()
    assert directory.read_json(run.path / "config.json")["hp"] == {"gamma": 0.9}


def test_a_wanted_reward_of_the_best_member_ends_a_population(whole, tmp_path):
    goal = float(whole.metrics["eval/mean_reward"][whole.metrics["step"] == 200].max())
    run = thespis.train("sac", out=tmp_path, **population(stop_reward=goal))
    assert run.status == {"state": "done", "step": 200}


# --- stop and continue ----------------------------------------------------------------------


@pytest.mark.parametrize("step", [pytest.param(200, marks=pytest.mark.slow), 250])
def test_a_population_that_was_stopped_continues_exactly(whole, tmp_path, monkeypatch, step):
    stop_at(monkeypatch, step)
    run = thespis.train("sac", out=tmp_path, **population())
    assert run.status["state"] == "stopped"
    again = thespis.resume(run.path, progress=False)
    assert again.status == {"state": "done", "step": 400}
    assert again.config == whole.config
    same(whole.path, run.path)


@pytest.mark.slow
def test_a_population_continues_exactly_on_another_number_of_devices(whole, tmp_path):
    begun = words(**{"members": 4, "eval_freq": 200, "pbt.interval": 100, "steps": 300})
    command = [sys.executable, "-m", "thespis", "train", "sac", *begun]
    more = ["--devices", "2", "--out", tmp_path, "--json"]
    done = subprocess.run([*command, *more], capture_output=True)
    assert done.returncode == 0, done.stderr
    folder = json.loads(done.stdout)["run"]
    assert thespis.load(folder).config.devices == 2
    run = thespis.resume(folder, steps=400, devices=1, progress=False)
    assert run.config.devices == 1
    same(whole.path, run.path)


def test_a_longer_population_equals_one_that_was_meant_to_be_long(whole, tmp_path):
    """Although the shorter one ended where an exchange would have been."""
    run = thespis.train("sac", out=tmp_path, **population(steps=300))
    thespis.resume(run.path, steps=400, progress=False)
    same(whole.path, run.path)


def test_a_lineage_that_knows_too_much_is_cut_back(whole, tmp_path):
    copy = shutil.copytree(whole.path, tmp_path / "run")
    shutil.rmtree(checkpoint.latest(copy / "checkpoints")[0])  # lost: it goes on from 300
    with open(copy / "lineage.csv", "a") as file:
        file.write("400,0,1")  # torn
    directory.write_json(copy / "status.json", {"state": "running", "step": 300})
    thespis.resume(copy, progress=False)
    same(whole.path, copy)


@pytest.mark.parametrize(
    "harm",
    [
        lambda x: x.replace(b"0.", b"1.", 1),  # a value
        pytest.param(lambda x: x.replace(b"\n200,3", b"\n200,9"), marks=pytest.mark.slow),
        pytest.param(lambda x: x.replace(b"step", b"stop"), marks=pytest.mark.slow),
        lambda x: x[: len(x) // 3],
        None,
    ],
)
def test_a_damaged_lineage_is_as_the_checkpoint_has_it(whole, tmp_path, capsys, harm):
    copy = shutil.copytree(whole.path, tmp_path / "run")
    shutil.rmtree(checkpoint.latest(copy / "checkpoints")[0])  # it goes on from 300
    file = copy / "lineage.csv"
    damaged = harm and harm(file.read_bytes())
    file.unlink() if harm is None else file.write_bytes(damaged)
    directory.write_json(copy / "status.json", {"state": "running", "step": 300})
    thespis.resume(copy, progress=False)
    same(whole.path, copy)
    told = capsys.readouterr().err
    fault = "missing" if harm is None else "damaged"
    assert f"{file} was {fault}: it is restored from the checkpoint" in told
    assert [x.read_bytes() for x in copy.glob("lineage.csv.*")] == ([damaged] if harm else [])


def test_a_checkpoint_that_knows_only_the_number_of_rows_goes_on_too(whole, tmp_path):
    """As those did that older versions wrote."""
    copy = shutil.copytree(whole.path, tmp_path / "run")
    for path in checkpoint.latest(copy / "checkpoints"):
        content = checkpoint.manifest(path)
        del content["parts"]["lineage"]
        checkpoint._write_manifest(path, content)
        (path / "lineage.safetensors").unlink()
    shutil.rmtree(checkpoint.latest(copy / "checkpoints")[0])
    directory.write_json(copy / "status.json", {"state": "running", "step": 300})
    thespis.resume(copy, progress=False)
    same(whole.path, copy)


def test_a_member_of_a_population_goes_on_alone_with_what_it_has(whole, tmp_path):
    run = thespis.resume(whole.path, steps=500, member="best", out=tmp_path, progress=False)
    best = whole.member("best")
    assert (run.config.tuner, run.config.seeds) == (None, (whole.config.seeds[best],))
    had = whole.hypers()
    assert run.config.hp == {name: float(x[best]) for name, x in vars(had).items()}
    assert np.float32(run.metrics["hparams/gamma"][-1]) == had.gamma[best]
    assert not (run.path / "lineage.csv").exists()


# --- the winner -----------------------------------------------------------------------------


def test_the_best_member_is_that_of_the_last_evaluation(whole):
    log = whole.metrics
    assert whole.member("best") == log["eval/mean_reward"][log["step"] == 400].argmax()
    assert whole.chosen("all") == [0, 1, 2, 3]
    assert whole.chosen("best") == [whole.member("best")]
    info = checkpoint.manifest(checkpoint.latest(whole.path / "best")[0])["info"]
    top = whole.member("best", "best")
    assert info["reward"][top] == pytest.approx(log["eval/mean_reward"].max())
    at = (log["step"] == info["step"][top]) & (log["member"] == top)
    assert whole.hypers("best").gamma[top] == np.float32(log["hparams/gamma"][at][0])


def test_a_schedule_follows_the_line_of_a_member(tmp_path):
    folder = tmp_path
    log = metrics.MetricsLog(folder, ["hparams/gamma", "hparams/alpha"], 3)
    for m in range(3):
        log.append(100, m, {"hparams/gamma": 0.9 + m / 100, "hparams/alpha": 1 + m})
    book = lineage.LineageLog(folder, ["gamma"])
    now = np.array([0.9, 0.91, 0.92])
    for step, parents, after in (
        (100, [0, 0, 2], [0.9, 0.95, 0.92]),
        (200, [1, 1, 2], [0.96, 0.95, 0.92]),
        (300, [0, 1, 2], [0.96, 0.95, 0.92]),
    ):
        given = np.array(parents), np.zeros(3), np.zeros(3, int)
        book.append(step, range(3), *given, {"gamma": now}, {"gamma": np.array(after)})
        now = np.array(after)
    start, changes = lineage.schedule(folder, 0)  # 0 <- 1 <- 0
    assert start == {"gamma": pytest.approx(0.9), "alpha": 1.0}
    assert changes == [(100, {"gamma": 0.95}), (200, {"gamma": 0.96})]
    assert lineage.schedule(folder, 2) == ({"gamma": pytest.approx(0.92), "alpha": 3.0}, [])


def test_a_winner_is_trained_again_with_its_schedule(whole, tmp_path, monkeypatch):
    child = int(whole.lineage["member"][whole.lineage["parent"] != whole.lineage["member"]][-1])
    run = thespis.rerun(whole.path, member=child, out=tmp_path, progress=False)
    assert (run.config.tuner, run.config.seeds) == (None, (whole.config.seeds[child],))
    log, then = run.metrics, whole.metrics
    start, changes = lineage.schedule(whole.path, child)
    assert changes[-1][0] == 300
    for name, x in vars(whole.hypers()).items():
        assert np.float32(log[f"hparams/{name}"][-1]) == x[child]
        assert log[f"hparams/{name}"][0] == start[name]
    assert then["step"][-1] == log["step"][-1]

    stop_at(monkeypatch, 210)
    part = thespis.rerun(whole.path, member=child, seed=9, out=tmp_path, progress=False)
    assert part.status["state"] == "stopped"
    assert part.config.seeds == (9,)
    thespis.resume(part.path, progress=False)
    whole_part = thespis.rerun(whole.path, member=child, seed=9, out=tmp_path, progress=False)
    assert differences(whole_part.path, part.path) == []


# --- healing --------------------------------------------------------------------------------

SICK = {"critic_lr": [3e-4, 3e-4, 1e38, 3e-4], "steps": 400}


@pytest.fixture(scope="module")
def healed(tmp_path_factory):
    """Member 2 breaks in its first update."""
    return thespis.train("sac", out=tmp_path_factory.mktemp("healed"), **population(**SICK))


def test_a_member_that_breaks_goes_on_as_a_copy_of_another(healed):
    table, log = healed.lineage, healed.metrics
    first = {name: x[0] for name, x in table.items()}
    assert (first["step"], first["member"]) == (200, 2)
    assert first["parent"] != 2
    assert np.isnan(first["score"])
    assert table["step"][1:5].tolist() == [200] * 4  # the exchange of that time is after it
    assert np.isfinite(log["eval/mean_reward"][log["step"] >= 200]).all()
    assert (log["hparams/critic_lr"][log["step"] == 400] == 3e-4).all()
    parts = ("state", "replay", "actors")
    kept = {name: x for name, x in arrays(healed.path).items() if name.startswith(parts)}
    assert all(np.isfinite(x).all() for x in kept.values())


def test_the_failing_update_is_kept_and_fails_again(healed):
    (path,) = healed.path.glob("faults/*/*")
    info = checkpoint.manifest(path)["info"]
    assert (path.parent.name, path.name) == ("member_2", f"{100:012d}")
    assert (info["what"], info["seed"], info["iteration"]) == ("actor", 2, 100)
    found = thespis.reproduce(path)
    assert found.what == "actor"  # the critics are huge, and what it climbs overflows
    assert found.tensor.startswith("actor")
    assert np.isfinite(found.metrics["critic_loss"])
    assert not any(np.isnan(x).any() for x in jax.tree.leaves(found.batch))


def test_healing_is_the_same_after_a_stop(healed, tmp_path, monkeypatch, capsys):
    """It does not depend on when the machine came to know."""
    stop_at(monkeypatch, 150)
    run = thespis.train("sac", out=tmp_path, **population(**SICK))
    assert run.status["state"] == "stopped"
    assert run.status["step"] == 100  # what is broken is not saved
    capsys.readouterr()
    thespis.resume(run.path, progress=False)
    told = capsys.readouterr().err
    assert "sac, step 100, seed 2: the actor is not finite" in told
    assert "member 2 continues as a copy of member" in told
    same(healed.path, run.path)


def test_a_population_of_which_all_break_stops(tmp_path):
    with pytest.raises(ThespisError, match=r"step 100, seed 0: the actor is not finite.*step 100:"):
        thespis.train("sac", out=tmp_path, **population(critic_lr=1e38))
    (folder,) = tmp_path.glob("sac/*")
    assert len(list(folder.glob("faults/*/*"))) == 4
    assert directory.read_json(folder / "status.json")["state"] == "failed"


def test_returns_that_are_not_finite_are_healed_too(whole, tmp_path, monkeypatch):
    x = started(tmp_path, population())
    evaluate, times = x.evaluate.play, []

    def spoilt(policies, seeds, time):
        played = evaluate(policies, seeds, time)
        times.append(int(time))
        if len(times) > 1:
            return played
        returns = np.where(np.arange(4)[:, None] == 1, np.nan, played.returns).astype(np.float32)
        return played._replace(returns=returns)

    x.evaluate = SimpleNamespace(play=spoilt, env=x.evaluate.env)
    assert x.run([]) == "done"
    x.close()
    assert times[:2] == [100, 100]
    table = lineage.read(tmp_path)
    assert (table["step"][0], table["member"][0]) == (100, 1)
    assert np.isnan(table["score"][0])
    (path,) = tmp_path.glob("faults/member_1/*")
    assert checkpoint.manifest(path)["info"]["what"] == "return"
    assert thespis.reproduce(path) is None  # it was only pretended


def started(folder, given):
    given = {k: v for k, v in given.items() if k != "progress"}
    config = configs.make("sac", given)
    config_file.write(folder, config, "")
    x = trainer.Trainer(config, build(config), folder, Silent())
    x.start()
    return x


# --- host environments ----------------------------------------------------------------------


@pytest.mark.slow
def test_host_environments_of_copies_begin_new_episodes(tmp_path):
    run = thespis.train("sac", out=tmp_path, **population(env=Toy, buffer_size=300, steps=300))
    table = run.lineage
    (child,) = np.flatnonzero(table["parent"] != table["member"])
    rows = {k.removeprefix("replay.rows."): v for k, v in arrays(run.path).items()}
    episode, moment = rows["obs"][:, :, 0, 0], rows["obs"][:, :, 0, 1]
    final = (rows["terminated"] | rows["truncated"])[:, :, 0]
    for m in range(4):
        assert final[200, m] == (m == child or moment[200, m] == 15)
        for t in range(299):
            assert (episode[t + 1, m] > episode[t, m]) == final[t, m]
            assert moment[t + 1, m] == (0 if final[t, m] else moment[t, m] + 1)


def test_a_member_with_host_environments_is_healed(tmp_path):
    x = started(tmp_path, population(env=Toy, buffer_size=300, steps=300, updates_per_step=0))
    assert x.run([1]) == "stopped"
    stop, wait = [], x.driver.run

    def spoil(learner, *given):
        learner = wait(learner, *given)
        if int(learner.clock.iteration) == 300:
            broken = lambda leaf: leaf.at[3].multiply(np.nan) if leaf.dtype == np.float32 else leaf
            learner = dataclasses.replace(learner, state=jax.tree.map(broken, learner.state))
        return learner

    x.driver.run = spoil
    assert x.run(stop) == "done"
    x.close()
    table = lineage.read(tmp_path)
    assert (table["step"][-1], table["member"][-1]) == (300, 3)
    assert all(np.isfinite(v).all() for k, v in arrays(tmp_path).items() if "best" not in k)


# --- what cannot work -----------------------------------------------------------------------


def test_python_takes_a_tuner_as_it_is(tmp_path):
    given = population(pbt=tuning.PBT(interval=100, tuned={"gamma": hyper.Uniform(0.5, 0.6)}))
    run = thespis.train("sac", out=tmp_path, **(given | {"steps": 300}))
    tuned = {"gamma": hyper.Uniform(0.5, 0.6)}
    assert run.config.tuning == tuning.PBT(interval=100, fitness="eval/mean_reward", tuned=tuned)
    assert config_file.read(run.path)[0] == run.config
    gamma = run.metrics["hparams/gamma"]
    assert ((gamma >= 0.5) & (gamma <= 0.6)).all()
    assert json.loads((run.path / "config.json").read_text())["pbt"]["interval"] == 100


# --- priorities -----------------------------------------------------------------------------


@pytest.mark.slow
def test_members_with_priorities_exchange_and_resume_bit_for_bit(tmp_path, monkeypatch):
    """Copies take over their parent's rows with the priorities."""
    about = {"replay": "parent", "interval": 100, "tuned": ("gamma", "priority_beta")}
    given = population(pbt=about, prioritized_replay=True, max_use=50, members=2)
    whole = thespis.train("td3", out=tmp_path / "whole", **given)
    assert (whole.lineage["parent"] != whole.lineage["member"]).any()
    stop_at(monkeypatch, 250)
    stopped = thespis.train("td3", out=tmp_path / "stopped", **given)
    resumed = thespis.resume(stopped.path, progress=False)
    same(whole.path, resumed.path)
