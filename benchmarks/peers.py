"""Make the virtual environments of the libraries that the benchmark compares with.

    python benchmarks/peers.py [--home .bench] [sb qdax rejax di rltools]

Each lives in `<home>/<name>`. One that is already there with the same packages is left alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

# Steps of `pip install`, in order. torch comes first and pinned: its wheel without CUDA.
JAX = ["jax==0.10.2", "jaxlib==0.10.2"]
PEERS: dict[str, list[list[str]]] = {
    "sb": [
        ["torch==2.13.0"],
        [*JAX, "stable-baselines3==2.9.2", "sbx-rl==0.28.0", "tfp-nightly==0.26.0.dev20261027"],
        ["gymnasium[mujoco]==1.4.0", "mujoco==3.17.0"],
    ],
    # tensorflow-probability's last release does not import beside this jax; the nightly does.
    "qdax": [[*JAX, "qdax==0.5.0"], ["tfp-nightly==0.26.0.dev20261027"]],
    # Its own pins are older than this Python; torch is there already, so nothing pulls in CUDA.
    "di": [
        ["torch==2.13.0"],
        ["easydict", "pyyaml", "cloudpickle", "tabulate", "click", "requests", "gymnasium==1.4.0"],
        ["einops", "tensorboardX", "trueskill", "matplotlib", "responses", "URLObject", "pynng"],
        ["flask<=2.0.3", "werkzeug<=2.0.3", "sniffio", "redis", "mpire", "enum-tools", "hickle"],
        ["wandb", "DI-treetensor==0.5.0", "DI-toolkit==0.3.0"],
        ["--no-deps", "DI-engine==0.5.3", "gym==0.25.1", "gym-notices", "numpy==1.26.4"],
    ],
    # gymnax 1 returns two flags where rejax expects one.
    "rejax": [[*JAX, "rejax==0.1.3", "gymnax==0.0.9"], ["tfp-nightly==0.26.0.dev20261027"]],
    # It compiles itself for every environment, with a C++ compiler and Python's headers.
    "rltools": [["rltools[mkl]==2.2.1", "gymnasium[mujoco]==1.4.0", "mujoco==3.17.0"]],
}
ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench"


def python(home: Path, name: str) -> Path:
    """The interpreter of one environment."""
    return home / name / "bin" / "python"


def make(home: Path, name: str) -> None:
    """Create and fill one environment, unless its stamp says that it is there already."""
    stamp = home / name / "packages.txt"
    wanted = "\n".join(" ".join(step) for step in PEERS[name]) + "\n"
    if stamp.exists() and stamp.read_text() == wanted:
        print(f"{name}: already in {home / name}")
        return
    print(f"{name}: making {home / name}")
    subprocess.run([sys.executable, "-m", "venv", str(home / name)], check=True)
    for packages in PEERS[name]:
        print(f"{name}: pip install {' '.join(packages)}", flush=True)
        pip = [str(python(home, name)), "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(pip, check=True)
    stamp.write_text(wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(PEERS)}; all")
    parser.add_argument("--home", type=Path, default=HOME, help="folder of the environments")
    args = parser.parse_args()
    if unknown := set(args.names) - set(PEERS):
        parser.error(f"unknown environment: {', '.join(sorted(unknown))}")
    for name in args.names or PEERS:
        make(args.home.resolve(), name)


if __name__ == "__main__":
    main()
