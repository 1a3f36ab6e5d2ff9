"""Version, changelog, citation, workflows, Makefile and dependencies agree."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml

import thespis
from tests.wheel import lowest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.M))


def read(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


def jobs(path: Path) -> list[dict]:
    return list(read(path)["jobs"].values())


# --- the version ----------------------------------------------------------------------------


def test_the_changelog_and_the_citation_are_of_this_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[(.*)\](?: - (.*))?$", text, re.M)
    assert len(headings) == text.count("\n## ")
    assert headings[0] == ("Unreleased", "")
    version, date = headings[1]
    citation = read(ROOT / "CITATION.cff")
    assert version == citation["version"] == PROJECT["version"]
    assert date == str(citation["date-released"])
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", text, re.M)) <= kinds


def test_the_version_is_that_of_the_installed_package(monkeypatch):
    assert thespis.__version__ == metadata.version("thespis")
    for file in (ROOT / "src").rglob("*.py"):
        assert not re.search(r"""__version__ *= *["']""", file.read_text()), file

    def nowhere(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", nowhere)
    assert thespis.__version__ == "0+unknown"


def test_the_citation_says_what_is_asked_for():
    citation = read(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]


# --- workflows ------------------------------------------------------------------------------


def test_there_is_a_workflow_for_each_thing():
    names = [read(path)["name"] for path in WORKFLOWS]
    assert names == [path.stem for path in WORKFLOWS] == ["docs", "lint", "release", "tests"]
    assert {
        x["package-ecosystem"] for x in read(ROOT / ".github" / "dependabot.yml")["updates"]
    } == {
        "pip",
        "github-actions",
    }


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_only_call_the_makefile_and_may_only_read(path):
    assert read(path)["permissions"] == {"contents": "read"}
    steps = [step for job in jobs(path) for step in job["steps"]]
    assert any("run" in step for step in steps)
    for step in steps:
        if "run" in step:
            command, target, *rest = step["run"].split()
            assert command == "make"
            assert target in TARGETS
            assert all(re.match(r"(TAG|ARGS)=", word) for word in rest[:1])
        else:
            assert re.fullmatch(r"(actions|pypa)/[\w-]+@\S+", step["uses"])
        assert "secrets" not in str(step)


def test_the_tests_run_on_every_python_that_is_named():
    named = [x.rpartition(" ")[2] for x in PROJECT["classifiers"] if "Python :: 3." in x]
    assert PROJECT["requires-python"] == f">={named[0]}"
    for job in jobs(ROOT / ".github" / "workflows" / "tests.yml"):
        assert job["strategy"]["matrix"]["python"] == named


def test_only_a_tag_publishes_and_only_what_was_tried():
    workflow = read(ROOT / ".github" / "workflows" / "release.yml")
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML takes `on` for a truth
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert "permissions" not in build
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert not any("run" in step for step in publish["steps"])
    assert "test-wheel" in MAKEFILE.partition("\nrelease:")[2].partition("\n\n")[0]


# --- the Makefile, templates, dependencies --------------------------------------------------


def test_make_help_lists_every_target():
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", MAKEFILE, re.M)
    assert set(phony[1].replace("\\", "").split()) == TARGETS
    explained = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.M))
    assert TARGETS - explained == {"browser"}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_templates_of_issues_are_forms(path):
    form = read(path)
    if path.stem == "config":
        assert form.keys() == {"blank_issues_enabled"}
        return
    assert {"name", "description", "body"} <= form.keys()
    fields = [part for part in form["body"] if part["type"] != "markdown"]
    assert all(part["type"] == "textarea" and part["attributes"]["label"] for part in fields)
    assert len({part["id"] for part in fields}) == len(fields)


def test_security_leads_to_how_to_report():
    assert "docs/security.md#report-a-vulnerability" in (ROOT / "SECURITY.md").read_text()
    assert "\n## Report a vulnerability\n" in (ROOT / "docs" / "security.md").read_text()


def test_jax_is_capped_because_of_the_interfaces_that_are_named():
    text = (ROOT / "pyproject.toml").read_text()
    reasons = text[text.index("# Lower bounds are") : text.index("\ndependencies")]
    code = "\n".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    used = set(re.findall(r"jax\._src\.\w+", code))
    used |= set(re.findall(r"from jax\.experimental\.(\w+)", code))
    assert len(used) > 4
    for name in used:
        assert name in reasons, f"pyproject.toml does not say that {name} is used"
    (cap,) = re.findall(r'"jax>=[\d.]+,<0\.(\d+)"', text)
    assert int(metadata.version("jax").split(".")[1]) < int(cap)


def test_every_dependency_has_a_lowest_version():
    assert len(lowest()) == len(PROJECT["dependencies"])
