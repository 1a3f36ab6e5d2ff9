"""The list of faults that tests must notice still applies, and what survives is told."""

import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

from tests import mutants
from tests.mutants import PACKAGE, ROOT, Mutant, every, survivors
from thespis.algos import ALGORITHMS


@pytest.mark.parametrize("file", sorted({m.file for m in every()}))
def test_every_fault_still_applies(file):
    """Where code has changed, tests/mutants.py has to follow."""
    text = (ROOT / PACKAGE / file).read_text()
    gone = {m.old: text.count(m.old) for m in every() if m.file == file}
    assert {old: n for old, n in gone.items() if n != 1} == {}


def test_the_list_is_one_of_faults():
    assert len([m for m in every() if not m.equivalent]) >= 60
    twice = [m for m, n in Counter((m.file, m.old, m.new) for m in every()).items() if n > 1]
    assert twice == []
    for mutant in every():
        assert mutant.line  # differs in one place, and has as many lines
        assert mutant.equivalent or mutant.tests


def test_every_algorithm_has_some():
    files = {m.file for m in every()}
    for algorithm in ALGORITHMS.values():
        assert algorithm.__module__.removeprefix("thespis.").replace(".", "/") + ".py" in files


@pytest.mark.parametrize("tests", sorted({m.tests for m in every() if m.tests}))
def test_the_tests_that_should_notice_are_there(tests):
    words = shlex.split(tests)
    files = [word for word in words if word.endswith(".py")]
    names = re.findall(r"def (test_\w+)", "".join((ROOT / file).read_text() for file in files))
    assert names
    if "-k" in words:
        for word in re.split(r" or | and |not ", words[words.index("-k") + 1]):
            assert any(word.strip() in name for name in names) or not word.strip(), word


@pytest.fixture
def tree(tmp_path) -> Path:
    """Two functions, of which one is tested."""
    package, tests = tmp_path / PACKAGE, tmp_path / "tests"
    package.mkdir(parents=True)
    tests.mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['slow']\n")
    (package / "__init__.py").touch()
    (package / "sums.py").write_text(
        "def f(x):\n    return x + 1\n\n\ndef g(x):\n    return x + 2\n"
    )
    (tests / "test_sums.py").write_text(
        "from thespis.sums import f\n\n\ndef test_f():\n    assert f(1) == 2\n"
    )
    return tmp_path


def test_what_no_test_notices_survives(tree):
    tests = "tests/test_sums.py"
    noticed = Mutant("sums.py", "x + 1", "x - 1", tests)
    unseen = Mutant("sums.py", "x + 2", "x - 2", tests)
    before = (tree / PACKAGE / "sums.py").read_bytes()
    assert list(survivors(tree, [noticed, unseen], 1)) == [(noticed, False), (unseen, True)]
    assert (tree / PACKAGE / "sums.py").read_bytes() == before


def test_tests_that_fail_anyway_notice_nothing(tree):
    (tree / "tests" / "test_sums.py").write_text("def test_f():\n    assert False\n")
    with pytest.raises(SystemExit, match="without any fault these fail already"):
        list(survivors(tree, [Mutant("sums.py", "x + 1", "x - 1", "tests/test_sums.py")], 1))


def test_what_survives_is_told(monkeypatch, capsys):
    mutant = Mutant("sums.py", "x + 2", "x - 2", "tests/test_sums.py")
    monkeypatch.setattr(mutants, "every", lambda: [mutant])
    monkeypatch.setattr(mutants, "survivors", lambda root, tried, n: [(m, True) for m in tried])
    assert mutants.main(["-k", "sums"]) == 1
    assert "1 tried in 0 minutes, 1 survived" in capsys.readouterr().out
    assert mutants.main(["-k", "another"]) == 0
