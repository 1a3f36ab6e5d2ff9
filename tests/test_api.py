"""From Python: train, resume and load, with environments by name or as objects."""

import os
import shutil
import subprocess
import sys
import threading

import gymnasium
import numpy as np
import pytest

import thespis
from tests.small import RUN, Toy, arguments, arrays, differences, stop_at
from thespis.core import ThespisError
from thespis.envs.classic import Pendulum
from thespis.runs import config as configs
from thespis.runs import config_file, metrics

pytestmark = pytest.mark.usefixtures("kept", "undrawn")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return thespis.train("sac", out=tmp_path_factory.mktemp("api"), **arguments())


def test_a_smoke_test_learns_and_says_from_what(tmp_path, capsys):
    run = thespis.train(
        "sac", "jax:pendulum", out=tmp_path, steps=100, hidden=(8,), eval_freq=100, eval_episodes=1
    )
    assert run.metrics["train/n_updates"].tolist() == [90]
    told = " ".join(capsys.readouterr().err.split())
    assert "learning starts at step 10, before there are 256 for a batch" in told


def test_training_returns_the_run_and_its_folder(run):
    assert isinstance(run, thespis.Run)
    assert run.path.name == "jax-pendulum_1"
    assert run.path.parent.name == "sac"
    assert {p.name for p in run.path.iterdir()} == {
        "best",
        "checkpoints",
        "compiled.json",
        "config.json",
        "metrics.csv",
        "plots",
        "report.html",
        "status.json",
        "tensorboard",
    }


def test_a_second_run_gets_a_folder_of_its_own(run):
    before = (run.path / "metrics.csv").read_bytes()
    again = thespis.train("sac", out=run.path.parents[1], **arguments(steps=200))
    assert again.path.name == "jax-pendulum_2"
    assert (run.path / "metrics.csv").read_bytes() == before


def test_the_config_is_enough_to_run_it_again(run, tmp_path):
    config, _ = config_file.read(run.path)
    given = {name: getattr(config, name) for name in configs.groups(config.Algorithm)["train"]}
    given |= {name: value for name, value in given.items() if value is not None}
    again = thespis.train(config.algo, out=tmp_path, progress=False,
                          **(given | config.options | config.hp))  # fmt: skip
    assert differences(run.path, again.path) == []
    assert metrics.differences(run.path / "metrics.csv", again.path / "metrics.csv") == []


def test_a_jax_task_is_the_same_as_its_name(run, tmp_path):
    again = thespis.train("sac", out=tmp_path, **arguments(env=Pendulum()))
    assert differences(run.path, again.path) == []
    with pytest.raises(ThespisError, match="was given as an object: pass it as env"):
        thespis.resume(again.path, steps=500, progress=False)
    longer = thespis.resume(again.path, steps=500, env=Pendulum(), progress=False)
    assert longer.status["step"] == 500
    assert longer.saved["env_given"] is True


@pytest.mark.parametrize("env", [Toy, lambda: Toy(), "tests.small:Toy-v0"])
def test_environments_of_gymnasium_come_as_class_factory_or_name(tmp_path, env):
    given = {k: v for k, v in arguments(updates_per_step=0).items() if k != "env"}
    run = thespis.train("td3", env, out=tmp_path, **given)
    assert run.metrics["step"].tolist() == [100, 200, 300, 400]
    assert run.metrics["rollout/ep_len_mean"][-1] == 15
    assert run.evaluate(episodes=2)["lengths"] == [15, 15]
    assert -2 <= run.policy()(np.zeros(3))[0] <= 2


def test_an_instance_is_refused_with_what_to_give_instead(tmp_path):
    with pytest.raises(ThespisError, match="is an instance.*: give the class, env=Toy, or a funct"):
        thespis.train("sac", Toy(), out=tmp_path)
    pendulum = gymnasium.make("Pendulum-v1")
    with pytest.raises(
        ThespisError, match='is an instance.*: give env="Pendulum-v1", or a funct'
    ) as e:
        thespis.train("sac", pendulum, out=tmp_path)
    made = 'env=lambda: gymnasium.make("Pendulum-v1", ...)'  # with its time limit
    assert str(e.value).endswith(f"such as {made}")
    wrapped = gymnasium.wrappers.ClipAction(pendulum)  # which its id would lose
    with pytest.raises(
        ThespisError, match="needed: give a function that creates it, such as "
    ) as e:
        thespis.train("sac", wrapped, out=tmp_path)
    assert str(e.value).endswith('env=lambda: ClipAction(gymnasium.make("Pendulum-v1", ...))')
    with pytest.raises(ThespisError, match='is an instance.*: give env="Pendulum-v1" and envs=2$'):
        thespis.train("sac", gymnasium.make_vec("Pendulum-v1", 2), out=tmp_path)
    with pytest.raises(ThespisError, match="env = 3 is not an environment: give an id such as"):
        thespis.train("sac", 3, out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_evaluations_may_have_an_environment_of_their_own(tmp_path):
    short = lambda: gymnasium.wrappers.TimeLimit(Toy(), 5)
    run = thespis.train(
        "sac", out=tmp_path, **arguments(env=Toy, eval_env=short, updates_per_step=0)
    )
    assert (run.metrics["eval/mean_ep_length"] == 5).all()
    assert run.metrics["rollout/ep_len_mean"][-1] == 15
    assert run.evaluate(episodes=2)["lengths"] == [5, 5]
    with pytest.raises(ThespisError, match="eval_env = Toy, which was given as an object"):
        thespis.load(run.path, env=Toy).evaluate(episodes=2)


def test_half_precision_trains_is_kept_in_float32_and_resumes_exactly(tmp_path):
    given = arguments(dtype="bfloat16", buffer_size=100)
    run = thespis.train("td3", out=tmp_path, **given | {"steps": 200})
    assert run.config.options["critic.dtype"] == "bfloat16"
    assert "bfloat16" not in {x.dtype.name for x in arrays(run.path).values()}
    half = thespis.train("td3", out=tmp_path, **given | {"steps": 150})
    thespis.resume(half.path, steps=200, progress=False)
    assert differences(run.path, half.path) == []
    assert np.isfinite(run.metrics["train/critic_loss"][-1])


def test_members_may_differ_in_their_hyper_parameters(tmp_path):
    rates = {"actor_lr": [1e-3, 2e-3], "critic_lr": [3e-3, 4e-3], "alpha_lr": [5e-3, 6e-3]}
    given = rates | {"gamma": [0.9, 0.5]}
    run = thespis.train("sac", out=tmp_path, **arguments(seeds=(0, 7), **given))
    for name, pair in given.items():
        assert run.metrics[f"hparams/{name}"][-2:] == pytest.approx(pair)
    alone = thespis.resume(run.path, member=1, out=tmp_path, progress=False)
    assert alone.config.hp["gamma"] == 0.5
    assert alone.metrics["hparams/gamma"] == pytest.approx([0.5] * 4)


def test_the_only_member_too_goes_on_in_a_run_of_its_own(run, tmp_path):
    before = {path: path.read_bytes() for path in run.path.rglob("*.*") if path.is_file()}
    alone = thespis.resume(run.path, steps=450, member=0, out=tmp_path, progress=False)
    assert tmp_path in alone.path.parents
    assert alone.status == {"state": "done", "step": 450}
    assert alone.metrics["step"].tolist() == [100, 200, 300, 400, 450]
    assert {path: path.read_bytes() for path in run.path.rglob("*.*") if path.is_file()} == before


def test_a_folder_has_no_other_name_or_place(tmp_path):
    given = arguments(folder=tmp_path / "here", name="mine")
    with pytest.raises(ThespisError, match="here is that of the run: leave out and name out"):
        thespis.train("sac", out=tmp_path, **given)
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_stays_where_it_is(run, tmp_path):
    with pytest.raises(ThespisError, match="out = .*there is for a new run"):
        thespis.resume(run.path, steps=450, out=tmp_path / "there", progress=False)
    assert run.status["step"] == 400


@pytest.mark.slow
def test_rows_count_alike_however_many_environments(tmp_path):
    run = thespis.train("sac", out=tmp_path, **arguments(envs=3, updates_per_step=0.5))
    table = run.metrics
    assert table["step"].tolist() == [102, 204, 306, 402]  # iterations of three rows
    assert table["train/n_updates"].tolist()[-1] == (402 - 102) // 2
    assert run.status == {"state": "done", "step": 402}


def test_without_updates_there_is_a_baseline(tmp_path):
    run = thespis.train("sac", out=tmp_path, **arguments(updates_per_step=0))
    assert run.metrics["train/n_updates"][-1] == 0
    assert len(set(run.metrics["hparams/gamma"])) == 1


def test_training_works_outside_the_main_thread(tmp_path):
    """There signals belong to somebody else."""
    found = []
    train = lambda: found.append(thespis.train("sac", out=tmp_path, **arguments(steps=200)))
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert found[0].status == {"state": "done", "step": 200}


def test_an_interrupted_training_returns_what_there_is(tmp_path, monkeypatch, capsys):
    stop_at(monkeypatch, 1)
    run = thespis.train("sac", out=tmp_path, **arguments())
    assert run.status["state"] == "stopped"
    assert not len(run.metrics["step"])
    assert not (run.path / "plots").exists()
    assert not (run.path / "best").exists()
    assert np.isfinite(run.policy()(np.zeros(3))).all()
    assert f"to go on: thespis resume {run.path}" in capsys.readouterr().err


def test_too_late_for_another_number_of_threads(run, tmp_path, capsys):
    late = thespis.train("sac", out=tmp_path, **arguments(steps=200, threads=3))
    assert late.config.threads == 1  # as JAX has started
    assert "JAX has started with 1 threads; 3 would suit" in capsys.readouterr().err
    saved = late.path / "config.json"
    saved.write_text(saved.read_text().replace('"threads": 1', '"threads": 3'))
    thespis.resume(late.path, steps=400, progress=False)
    told = capsys.readouterr().err
    assert "was trained with 3 thread(s) (now 1: set NPROC=3 before Python starts)" in told
    assert "may differ in the last bits" in told


def test_a_run_of_another_kind_of_device_goes_on_and_says_so(run, tmp_path, capsys):
    there = tmp_path / "run"
    shutil.copytree(run.path, there)
    saved = there / "config.json"
    assert '"device": "auto"' in saved.read_text()
    text = saved.read_text().replace('"device": "cpu"', '"device": "NVIDIA H100"')
    saved.write_text(text.replace('"device": "auto"', '"device": "gpu"'))
    with pytest.raises(ThespisError, match="device = gpu: JAX has started on cpu"):
        thespis.resume(there, steps=410, device="gpu", progress=False)
    thespis.resume(there, steps=410, progress=False)
    told = capsys.readouterr().err
    assert "was trained with device NVIDIA H100 (now cpu): what follows may differ in the" in told
    thespis.resume(there, steps=420, device="cpu", progress=False)
    assert '"device": "cpu"' in saved.read_text()


def test_a_kind_of_device_that_is_not_there_leaves_no_folder(tmp_path):
    with pytest.raises(ThespisError, match="device = tpu: JAX has started on cpu"):
        thespis.train("sac", out=tmp_path, **arguments(device="tpu"))
    assert not list(tmp_path.iterdir())


def test_the_command_line_restores_the_number_of_threads(run):
    """It decides before JAX starts, whatever the surroundings say."""
    code = (
        "import os; from thespis import api, cli\n"
        "api.finish = lambda *_: print(os.environ['NPROC'])\n"
        f"cli.main(['resume', {str(run.path)!r}, '--steps', '500'])"
    )
    env = os.environ | {"NPROC": "7"}
    done = subprocess.run([sys.executable, "-c", code], env=env, text=True, capture_output=True)
    assert done.stdout == "1\n", done.stderr
    assert "threads" not in done.stderr


def test_every_algorithm_is_there_by_its_name():
    for Algorithm in thespis.ALGORITHMS.values():
        assert getattr(thespis, Algorithm.__name__) is Algorithm


def test_the_public_names_are_there():
    for name in thespis.__all__:
        assert getattr(thespis, name) is not None
    assert set(thespis.__all__) <= set(dir(thespis))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        thespis.nothing  # noqa: B018


def test_importing_thespis_is_light():
    code = "import sys, thespis; assert not {'jax', 'numpy', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_starts_jax_before_the_threads_are_chosen():
    code = "import thespis.api, thespis.xla.threads as m; assert not m.started()"
    subprocess.run([sys.executable, "-c", code], check=True)


assert RUN["steps"] == 400  # figures above rely on it
