"""What a newcomer does in the first hours works: newcomer.md, step by step, in an empty folder."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import thespis
from tests.report.hub_server import TOKEN, serving
from thespis.cli.command import COMMANDS

pytestmark = [pytest.mark.slow, pytest.mark.posix]

SCRIPT = Path(__file__).with_name("newcomer.md")
STEP = re.compile(r"^## (\d+)\. ([^\n]*)\n\n```bash\n(.*?)\n```\n((?:\w+: [^\n]*\n)*)", re.M | re.S)
LONGEST = 1200  # seconds of a step: a safety net


@dataclass(frozen=True)
class Step:
    number: int
    title: str
    lines: str
    exit: int
    prints: list[str]
    needs: str | None


def steps() -> list[Step]:
    found = []
    for number, title, lines, said in STEP.findall(SCRIPT.read_text("utf-8")):
        facts = [line.partition(": ")[::2] for line in said.splitlines()]
        assert {name for name, _ in facts} <= {"exit", "prints", "needs"}, title
        one = dict(facts)
        prints = [text for name, text in facts if name == "prints"]
        code = int(one.get("exit", 0))
        found.append(Step(int(number), title, lines, code, prints, one.get("needs")))
    return found


def test_sixty_steps_of_a_newcomer(tmp_path):
    pytest.importorskip("huggingface_hub")
    pytest.importorskip("nbclient")
    pytest.importorskip("onnx")
    assert [step.number for step in steps()] == [*range(1, 61)]
    folder, home = tmp_path / "empty", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    with serving() as hub:
        own = {name: x for name, x in os.environ.items() if not name.startswith("HF_")}
        own |= {
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "XDG_STATE_HOME": str(home / "state"),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(Path(thespis.__file__).parents[1]),  # the package that is tested
            "COLUMNS": "200",
            "HF_ENDPOINT": hub.url,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(home / "hub"),
            "HF_HUB_DISABLE_XET": "1",
            "PYTHONWARNINGS": "ignore",
        }
        own.pop("THESPIS_RUNS", None)
        own.pop("JAX_COMPILATION_CACHE_DIR", None)
        faults = [fault for step in steps() if (fault := walk(step, folder, own))]
    assert not faults, "\n\n".join(faults)


def walk(step: Step, folder: Path, env: dict[str, str]) -> str:
    """Does a step, and returns what was wrong with it."""
    where = f"step {step.number}, {step.title}"
    if step.needs and step.needs not in COMMANDS:
        print(f"{where}: skipped, there is no thespis {step.needs}", flush=True)
        return ""
    done = subprocess.run(
        ["bash", "-c", step.lines],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST,
    )
    lacking = [text for text in step.prints if text not in done.stdout]
    traced = "Traceback" in done.stdout
    print(f"{where}: exit {done.returncode}", flush=True)
    if done.returncode == step.exit and not lacking and not traced:
        return ""
    told = "\n".join(done.stdout.splitlines()[-30:])
    return f"{where}: exit {done.returncode}, not said: {lacking}\n{told}"
