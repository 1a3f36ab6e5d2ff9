"""Run folders get their own numbers, and small files are replaced as a whole."""

import errno
import json
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from thespis.core import ThespisError
from thespis.runs import directory


def refuse(code):
    def call(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    return call


def test_runs_are_numbered_and_no_number_is_used_twice(tmp_path):
    first = directory.create(tmp_path / "runs", "sac", "Pendulum-v1")
    second = directory.create(tmp_path / "runs", "sac", "Pendulum-v1")
    assert first == tmp_path / "runs" / "sac" / "Pendulum-v1_1"
    assert second.name == "Pendulum-v1_2"
    first.rmdir()  # a gap is not filled: its number may be written down somewhere
    assert directory.create(tmp_path / "runs", "sac", "Pendulum-v1").name == "Pendulum-v1_3"
    assert directory.create(tmp_path / "runs", "sac", "Pendulum").name == "Pendulum_1"
    assert directory.create(tmp_path / "runs", "td3", "Pendulum-v1").name == "Pendulum-v1_1"


def test_a_file_in_the_way_of_a_number_is_left_alone(tmp_path):
    (tmp_path / "sac").mkdir()
    (tmp_path / "sac" / "point_1").write_text("mine")
    assert directory.create(tmp_path, "sac", "point").name == "point_2"
    assert (tmp_path / "sac" / "point_1").read_text() == "mine"


def test_an_environment_name_never_makes_a_folder_of_its_own(tmp_path):
    assert directory.create(tmp_path, "sac", "ALE/Pong-v5").name == "ALE-Pong-v5_1"
    assert directory.create(tmp_path, "sac", "brax:ant").parent == tmp_path / "sac"


def create_many(out):
    return [str(directory.create(Path(out), "sac", "point")) for _ in range(20)]


def test_two_processes_at_once_get_different_folders(tmp_path):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        a, b = pool.map(create_many, [str(tmp_path)] * 2)
    assert len({*a, *b}) == 40
    assert sorted(p.name for p in (tmp_path / "sac").iterdir()) == sorted(
        f"point_{n}" for n in range(1, 41)
    )


def test_losing_a_race_takes_the_next_number(tmp_path, monkeypatch):
    """Another process makes the folder between our look and our mkdir."""
    make, lost = Path.mkdir, []

    def late(self, *args, **kwargs):
        if self.name == "point_1" and not lost:
            lost.append(self)
            make(self)
        return make(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", late)
    assert directory.create(tmp_path, "sac", "point").name == "point_2"


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_folder_that_cannot_be_made_is_explained_in_one_line(tmp_path, monkeypatch, code):
    monkeypatch.setattr(os, "mkdir", refuse(code))
    with pytest.raises(ThespisError) as caught:
        directory.create(tmp_path / "runs", "sac", "point")
    message = str(caught.value)
    assert str(tmp_path / "runs" / "sac") in message
    assert os.strerror(code) in message
    assert "\n" not in message


def test_an_out_folder_that_is_a_file_is_explained(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(ThespisError, match="cannot write"):
        directory.create(tmp_path / "runs", "sac", "point")


def test_json_round_trip(tmp_path):
    content = {"algo": "sac", "lr": 3e-4, "seeds": [0, 1], "clip": None, "nested": {"é": True}}
    directory.write_json(tmp_path / "config.json", content)
    assert directory.read_json(tmp_path / "config.json") == content
    assert json.loads((tmp_path / "config.json").read_text()) == content


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "config.json"
    directory.write_json(path, {"old": 1})
    monkeypatch.setattr(os, call, refuse(errno.ENOSPC))
    with pytest.raises(ThespisError, match=r"config\.json.*No space left.*free some space"):
        directory.write_json(path, {"new": 2})
    assert directory.read_json(path) == {"old": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_what_json_cannot_hold_never_touches_the_file(tmp_path):
    path = tmp_path / "config.json"
    directory.write_json(path, {"old": 1})
    with pytest.raises(TypeError):
        directory.write_json(path, {"new": object()})
    assert directory.read_json(path) == {"old": 1}


def test_a_file_that_is_missing_or_no_json_is_named(tmp_path):
    with pytest.raises(ThespisError, match=r"cannot read .*config\.json: No such file"):
        directory.read_json(tmp_path / "config.json")
    (tmp_path / "config.json").write_text('{"a": 1')
    with pytest.raises(ThespisError, match=r"config\.json is not valid JSON"):
        directory.read_json(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("argv", "typed"),
    [
        (["/opt/bin/thespis", "runs", "--filter", "a b"], "thespis runs --filter 'a b'"),
        (["/opt/thespis/__main__.py", "runs"], "python -m thespis runs"),
        (["mine/train.py", "3"], "python mine/train.py 3"),
        (["/opt/bin/own", "3"], "/opt/bin/own 3"),
        (["/opt/ipykernel_launcher.py", "-f", "kernel.json"], ""),
        (["-c"], ""),
        ([""], ""),
        ([], ""),
    ],
)
def test_a_command_is_what_can_be_typed_again(argv, typed, monkeypatch):
    monkeypatch.setattr(directory.sys, "argv", argv)
    assert directory.this_command() == typed


def test_a_file_of_too_many_levels_is_refused(tmp_path):
    for levels, fine in ((50, True), (51, False), (900, False), (100_000, False)):
        (tmp_path / "x.json").write_text("[" * levels + "]" * levels)
        if fine:
            assert len(directory.read_json(tmp_path / "x.json")) == 1
            continue
        with pytest.raises(ThespisError, match="x.json is not valid JSON"):
            directory.read_json(tmp_path / "x.json")


def test_the_config_of_a_run_has_fields_of_the_expected_kinds(tmp_path):
    config = {"algo": "sac", "env": "jax:pendulum", "seeds": [0], "steps": 100}
    groups = ("hp", "options", "pbt", "versions")
    empty = directory.checked_config(tmp_path, config | dict.fromkeys(groups))
    assert empty == config | {name: {} for name in groups}
    for wrong in ({"steps": 10**400}, {"seeds": [2**63]}, {"schedule": [[10**400, {}]]}):
        with pytest.raises(ThespisError, match=f"check '{next(iter(wrong))}'"):
            directory.checked_config(tmp_path, config | wrong)


def test_versions_say_what_the_run_depends_on():
    import jax

    found = directory.versions()
    assert set(found) == {"python", "thespis", "jax", "jaxlib", "numpy", "platform", "device"}
    assert found["jax"] == jax.__version__
    assert all(found.values())
    json.dumps(found)


def test_a_run_folder_is_found_by_its_config(tmp_path):
    run = directory.create(tmp_path, "sac", "point")
    directory.write_json(run / "config.json", {})
    assert directory.find(run) == run
    assert directory.find(str(run)) == run


@pytest.mark.parametrize("asked", ["sac/pont_1", "sac", "sca/point_1", "sac/point_1/videos", ""])
def test_anything_else_is_answered_with_the_nearest_runs(tmp_path, asked):
    run = directory.create(tmp_path, "sac", "point")
    directory.write_json(run / "config.json", {})
    (run / "videos").mkdir()
    with pytest.raises(ThespisError) as caught:
        directory.find(tmp_path / asked)
    message = str(caught.value)
    assert str(tmp_path / asked / "config.json") in message
    assert message.endswith(f"the nearest runs are {run}")


def test_no_runs_at_all_is_said(tmp_path):
    with pytest.raises(ThespisError, match="there are no runs in"):
        directory.find(tmp_path / "nowhere")


def test_nobody_searches_the_whole_disk_for_the_nearest_run(tmp_path, monkeypatch):
    """`thespis report /typo/x` would look through /proc and /sys, where files come and go."""
    monkeypatch.setattr(directory.Path, "glob", lambda *given: pytest.fail("it looks everywhere"))
    monkeypatch.setattr(directory.os, "walk", lambda start: pytest.fail(f"it looks below {start}"))
    with pytest.raises(ThespisError, match="there are no runs in /"):
        directory.find("/nowhere/at/all")


def test_folders_that_cannot_be_read_do_not_keep_the_nearest_run_from_being_named(
    tmp_path, monkeypatch
):
    run = tmp_path / "runs" / "sac" / "x_1"
    run.mkdir(parents=True)
    (run / "config.json").touch()
    (tmp_path / "gone").mkdir()
    scandir = os.scandir

    def gone(path):
        if str(path).endswith("gone"):
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", gone)
    with pytest.raises(ThespisError, match=f"the nearest runs are {run}"):
        directory.find(tmp_path / "rnus")


@pytest.mark.parametrize(
    ("config", "plain", "longer"),
    [
        ({"env": "jax:pendulum"}, "thespis resume {}", "thespis resume {} --steps N"),
        (
            {"env_given": True, "demos_given": True},
            'thespis.resume("{}", env=..., demos=...)',
            'thespis.resume("{}", steps=N, env=..., demos=...)',
        ),
    ],
)
def test_who_needs_objects_goes_on_from_python(tmp_path, config, plain, longer):
    directory.write_json(tmp_path / "config.json", config)
    assert directory.how_to_resume(tmp_path) == plain.format(tmp_path)
    assert directory.how_to_resume(tmp_path, "N") == longer.format(tmp_path)
