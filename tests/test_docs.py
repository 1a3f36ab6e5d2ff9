"""The documentation: every link leads somewhere, every command is explained, every example runs."""

import ast
import importlib
import re
import runpy
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest

import thespis
from thespis.algos import ALGORITHMS
from thespis.cli.command import COMMANDS
from thespis.values import fields

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
OTHERS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as Markdown makes them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    plain = (re.sub(r"[^\w\- ]", "", head.lower()) for head in heads)
    return {head.strip().replace(" ", "-") for head in plain}


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    listed = re.findall(r"- (?:\w+: )?(\S+\.md)$", text, re.M)
    assert sorted(listed) == [str(page.relative_to(ROOT / "docs")) for page in PAGES]


def test_the_site_tells_every_command_and_option():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from hooks import MARKER, commands
    finally:
        sys.path.remove(str(ROOT / "docs"))
    text = commands()
    assert MARKER in (ROOT / "docs" / "commands.md").read_text()
    for command in COMMANDS:
        assert f"## `thespis {command}`" in text
    for name, algorithm in ALGORITHMS.items():
        _, _, part = text.partition(f"## `thespis train {name}`")
        part = part.partition("\n## ")[0]
        for option in fields(algorithm.Hyper, "hp.") + fields(algorithm, "algo.", skip=("spec",)):
            assert f"--{option.name.replace('_', '-')}" in part


def defined(path: Path) -> set[str]:
    """The names of a file's functions, classes and methods, the latter as Class.method."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
            inside = node.body if isinstance(node, ast.ClassDef) else ()
            names |= {f"{node.name}.{x.name}" for x in inside if isinstance(x, ast.FunctionDef)}
    return names


def test_the_architecture_names_functions_that_exist():
    text = (ROOT / "docs" / "architecture.md").read_text()
    hops = re.findall(r"^\| \d+ \| `(\S+\.py)` `(\S+)` \|", text, re.M)
    assert len(hops) > 50
    for file, name in hops:
        assert name in defined(ROOT / "src" / "thespis" / file), f"{file} has no {name}"


def test_the_architecture_has_every_layer_and_protocol():
    text = (ROOT / "docs" / "architecture.md").read_text()
    with open(ROOT / "pyproject.toml", "rb") as file:
        layers = tomllib.load(file)["tool"]["importlinter"]["contracts"][0]["layers"]
    wanted = re.findall(r"thespis\.(\w+)", " ".join(layers))
    assert re.findall(r"^\| \[`(\w+)(?:/|\.py)`\]", text, re.M) == wanted
    core = (ROOT / "src" / "thespis" / "core.py").read_text()
    for protocol in re.findall(r"^class (\w+)\(Protocol\)", core, re.M):
        assert f"\n| `{protocol}` |" in text, f"Protocols in architecture.md lack {protocol}"


# Files of tests that are about no single module.
ELSEWHERE = {
    "algos/test_probes.py": "known values, of all algorithms",
    "algos/test_seams.py": "algorithms of one's own, as in the examples",
    "algos/test_switches.py": "all choices of critics, networks and optimisers in one update",
    "envs/test_contract.py": "what every environment promises",
    "test_docs.py": "the documentation, and that tests mirror the source",
    "test_mutants.py": "tests/mutants.py",
    "test_packaging.py": "version, changelog, workflows",
    "test_typecheck.py": "tests/typecheck.py",
    "test_windows.py": "all that only POSIX has",
}
FOLDERS = ("benchmarks", "browser", "faults", "slow")  # of scripts, the page, campaigns, learning


def test_tests_mirror_the_source():
    """A module and its tests have one name, so that each is found by the other."""
    modules = {
        path.relative_to(ROOT / "src" / "thespis").with_name(f"test_{path.name}").as_posix()
        for path in (ROOT / "src" / "thespis").rglob("*.py")
        if path.stem not in ("__init__", "__main__")
    }
    tests = {path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    tests = {path.as_posix() for path in tests if path.parts[0] not in FOLDERS}
    assert sorted(modules - tests) == []  # modules without tests of their own
    assert sorted(tests - modules) == sorted(ELSEWHERE)


def test_every_capability_names_tests_that_exist():
    text = (ROOT / "docs" / "features.md").read_text()
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 300
    for file, name in named:
        path = ROOT / "tests" / file
        assert path.exists(), f"features.md names {file}"
        assert not name or f"def {name}(" in path.read_text(), f"{file} has no {name}"


def test_the_navigation_has_every_page():
    named = re.findall(r"- (?:\w+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(named) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES)


def test_the_site_is_built_without_a_complaint(tmp_path):
    for tool in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(tool)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in PAGES:
        html = tmp_path / page.relative_to(ROOT / "docs").with_suffix(".html")
        assert html.exists()


QUICK = {"functional": "3"}


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_examples_import_what_there_is(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("thespis"):
            assert node.module
            module = importlib.import_module(node.module)
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")


EXAMPLES = [
    pytest.param(path, marks=[] if path.stem in QUICK else pytest.mark.slow, id=path.stem)
    for path in sorted((ROOT / "examples").glob("*.py"))
]


@pytest.mark.usefixtures("kept", "undrawn")
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_run(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example), QUICK.get(example.stem, "300")])
    seldom = partial(thespis.train, eval_freq=300, eval_episodes=1)
    monkeypatch.setattr(thespis, "train", seldom)
    runpy.run_path(str(example), run_name="__main__")
