"""Who says little still says what must be known."""

from types import SimpleNamespace

import pytest

from thespis.runs.directory import write_json
from thespis.runs.reporter import Mute, Reporter, Silent


@pytest.fixture
def run(tmp_path):
    """What a reporter is told of a run."""
    path = tmp_path / "two words"
    path.mkdir()
    write_json(path / "config.json", {"env": "jax:pendulum"})
    return SimpleNamespace(path=path, status={"step": 1500})


def test_silence_still_tells_how_to_go_on(run, capsys):
    watcher = Silent()
    watcher.done(run, "done", None)
    assert capsys.readouterr() == ("", "")
    watcher.done(run, "stopped", None)
    told = capsys.readouterr()
    assert told.out == ""
    assert f"thespis resume '{run.path}'" in told.err


def test_notes_cannot_move_the_cursor(capsys):
    Silent().note("a run \x1b[2J of others")
    assert capsys.readouterr().err == "note: a run \\x1b[2J of others\n"


def test_other_processes_say_nothing_at_all(run, capsys):
    mute = Mute()
    mute.note("something")
    mute.done(run, "stopped", None)
    assert capsys.readouterr() == ("", "")


def test_a_run_that_fails_is_watched_to_its_end():
    class Watcher(Silent):
        seen = ()

        def begin(self, config, folder, step):
            self.seen += ("begin", step)

        def end(self):
            self.seen += ("end",)

    watcher = Watcher()
    assert isinstance(watcher, Reporter)
    with pytest.raises(ZeroDivisionError), watcher.watching(None, "run", step=7):
        _ = 1 / 0
    assert watcher.seen == ("begin", 7, "end")
