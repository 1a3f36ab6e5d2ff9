"""Tries the wheel in dist/ as users get it: in an environment of its own, outside the repository.

`make test-wheel` builds and calls it. With --lowest it installs the oldest dependencies that
pyproject.toml allows, with --python NAME it takes another Python.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "thespis"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SMALL = "--steps 200 --hidden 8 8 --eval-episodes 2 --json"
ELSEWHERE = f"""
import thespis
from pathlib import Path
home = Path(thespis.__file__).parent
assert not home.is_relative_to({str(ROOT)!r}), home
assert (home / "py.typed").exists()
print(thespis.__version__)
"""


def lowest() -> list[str]:
    """The oldest versions that the dependencies allow, as constraints of pip."""
    bounds = [re.match(r"([\w-]+)>=([\d.]+)", needed) for needed in PROJECT["dependencies"]]
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound]


def check_content(wheel: Path) -> None:
    """Every file of the package is in the wheel, and nothing else."""
    found = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    there = (x for x in PACKAGE.rglob("*") if x.is_file() and "__pycache__" not in x.parts)
    wanted = {str(x.relative_to(PACKAGE.parent).as_posix()) for x in there}
    assert found == wanted, f"differ: {sorted(found ^ wanted)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--lowest", action="store_true")
    chosen = parser.parse_args()
    (wheel,) = (ROOT / "dist").glob(f"thespis-{PROJECT['version']}-*.whl")
    check_content(wheel)

    with tempfile.TemporaryDirectory(prefix="thespis-wheel-") as place:
        folder, bin = Path(place), Path(place, "env", "bin" if os.name == "posix" else "Scripts")
        places = {f"XDG_{name}_HOME": str(folder / name) for name in ("CACHE", "STATE")}
        own = os.environ | places | {"JAX_PLATFORMS": "cpu"}
        for name in ("PYTHONPATH", "JAX_COMPILATION_CACHE_DIR"):
            own.pop(name, None)

        def say(*command: str | Path) -> str:
            """What a command prints; it fails if that, or the command, complains."""
            words = [str(word) for word in command]
            done = subprocess.run(words, cwd=folder, env=own, capture_output=True, text=True)
            told = [x for x in done.stderr.splitlines() if not x.startswith("note: ")]
            if done.returncode or (words[0] == str(bin / "thespis") and told):
                raise SystemExit(f"{' '.join(words)}: {done.returncode}\n{done.stderr[-5000:]}")
            return done.stdout

        def thespis(text: str) -> str:
            print(f"thespis {text}", flush=True)
            return say(bin / "thespis", *text.split())

        (folder / "constraints.txt").write_text("\n".join(lowest() if chosen.lowest else []))
        python = Path(chosen.python).absolute() if os.sep in chosen.python else chosen.python
        say(python, "-m", "venv", folder / "env")
        pip = [bin / "python", "-m", "pip", "--disable-pip-version-check"]
        say(*pip, "install", "-q", "-c", folder / "constraints.txt", wheel)
        say(*pip, "check")
        print(say(bin / "python", "--version") + say(*pip, "list", "--format=freeze"), flush=True)

        assert say(bin / "python", "-c", ELSEWHERE).strip() == PROJECT["version"]
        assert thespis("--help").startswith("usage: thespis")
        assert thespis("--version") == f"thespis {PROJECT['version']}\n"
        assert "crossq" in thespis("list")
        thespis(f"train sac --env jax:pendulum {SMALL}")
        thespis(f"train td3 --env Pendulum-v1 {SMALL}")
        run = "runs/sac/jax-pendulum_1"
        assert json.loads(thespis(f"eval {run} --episodes 2 --json"))["lengths"] == [200, 200]
        thespis(f"export {run} -o policy")
        thespis(f"report {run}")
        assert "<script" in (folder / run / "report.html").read_text("utf-8")
        thespis(f"plot {run} -o curve.png")
        thespis(f"play {run} -o swing-up.gif")
    print(f"{wheel.name} works")


if __name__ == "__main__":
    main()
