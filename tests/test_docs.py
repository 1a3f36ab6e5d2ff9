"""The documentation: every link leads somewhere, every command is explained, every example runs."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from thespis.algos import ALGORITHMS
from thespis.cli.command import VERBS
from thespis.values import fields

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
OTHERS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


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


def test_the_site_tells_every_command_and_option():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from hooks import MARKER, commands
    finally:
        sys.path.remove(str(ROOT / "docs"))
    text = commands()
    assert MARKER in (ROOT / "docs" / "commands.md").read_text()
    for verb in VERBS:
        assert f"## `thespis {verb}`" in text
    for name, algorithm in ALGORITHMS.items():
        _, _, part = text.partition(f"## `thespis train {name}`")
        part = part.partition("\n## ")[0]
        for option in fields(algorithm.Hyper, "hp.") + fields(algorithm, "algo.", skip=("spec",)):
            assert f"--{option.name.replace('_', '-')}" in part


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


QUICK = {"functional": "3", "train_and_use": "300", "custom_environment": "300"}
EXAMPLES = [
    pytest.param(path, marks=[] if path.stem in QUICK else pytest.mark.slow, id=path.stem)
    for path in sorted((ROOT / "examples").glob("*.py"))
]


@pytest.mark.usefixtures("kept", "undrawn")
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_run(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example), QUICK.get(example.stem, "300")])
    runpy.run_path(str(example), run_name="__main__")
