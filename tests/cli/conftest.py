"""Runs that commands are tried on, and commands that work or complain."""

import pytest

import thespis
from tests.small import arguments
from thespis.cli.command import main


def train(folder, **changes):
    """A small run of SAC, by programs that are kept as the command keeps them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thespis.xla.compile_cache.keeping", True)
        return thespis.train("sac", out=folder, **arguments(**changes))


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("cli"))


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    return train(tmp_path_factory.mktemp("pair"), seeds=(0, 7))


@pytest.fixture(scope="session")
def population(tmp_path_factory):
    """Three members that exchange at 200 and 300."""
    return train(tmp_path_factory.mktemp("population"), members=3, pbt={"interval": 100})


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Relative paths lead into a folder of the test's own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def say(capsys):
    """Run a command that works -> its lines on stdout."""

    def run(*argv: str) -> list[str]:
        code = main([str(word) for word in argv])
        told = capsys.readouterr()
        assert code == 0, told.err
        return told.out.splitlines()

    return run


@pytest.fixture
def complain(capsys, tmp_path):
    """Run a command that must fail -> its one line on stderr. No run is left behind."""

    def run(*argv: str) -> str:
        code = main([str(word) for word in argv])
        told = capsys.readouterr()
        lines = told.err.splitlines()
        assert code == 2, told
        assert told.out == ""
        assert len(lines) == 1, lines
        assert lines[0].startswith("thespis: ")
        assert " object at 0x" not in lines[0]
        assert not list(tmp_path.glob("runs/*/*"))
        return lines[0]

    return run
