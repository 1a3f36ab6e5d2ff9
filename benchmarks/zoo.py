"""Trains the policies of `thespis zoo` again, each by the command that its config.json records.

    python benchmarks/zoo.py                  # all of them, some thirteen CPU-minutes
    python benchmarks/zoo.py jax-pendulum     # some

They are trained with the defaults or a preset by name, and small networks. What is kept of a run is
what a policy needs: no replay, no moments of the optimiser, no videos and logs but metrics.csv.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import thespis
from thespis.runs import checkpoint, formats, zoo
from thespis.runs.directory import write_json

SMALL = "--hidden 32 32"
BATCH = f"{SMALL} --batch-size 64"
COMMANDS = [
    f"sac --env jax:pendulum --steps 20000 {SMALL}",
    f"taac --env jax:mountain-car --preset sparse --steps 50000 {SMALL}",
    f"discrete-sac --env jax:cartpole --steps 50000 {BATCH}",
    f"discrete-sac --env jax:acrobot --steps 30000 {BATCH}",
    f"discrete-sac --env jax:grid --steps 20000 {BATCH}",
    f"sac --env jax:pointmass --steps 10000 {BATCH}",
    "discrete-sac --env jax:catch --steps 15000 --hidden 16 16 --batch-size 64",
    f"masac --env jax:meeting --preset particles --steps 20000 {SMALL}",
    "masac --env jax:meeting-continuous --preset particles --steps 20000 --hidden 64 64",
    f"td3 --env Pendulum-v1 --steps 20000 {SMALL}",
    f"taac --env MountainCarContinuous-v0 --preset sparse --steps 50000 {SMALL}",
    f"discrete-sac --env CartPole-v1 --steps 50000 {BATCH}",
    "discrete-sac --env Acrobot-v1 --steps 40000 --hidden 64 64 --batch-size 64",
]
EPISODES = 100  # of the return that is recorded


def name_of(command: str) -> str:
    """Returns the name in the zoo: that of the environment, as folders of runs have it."""
    words = command.split()
    return words[words.index("--env") + 1].replace(":", "-")


def train(command: str, folder: Path) -> Path:
    """Trains in a folder and returns the run."""
    program = Path(sys.executable).with_name("thespis")
    subprocess.run([str(program), "train", *shlex.split(command)], cwd=folder, check=True)
    (run,) = folder.glob("runs/*/*")
    return run


def keep(source: Path, target: Path) -> float:
    """Makes an entry of the zoo of a run, and returns its return."""
    result = thespis.load(source).evaluate(EPISODES)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in ("config.json", "status.json", "metrics.csv"):
        shutil.copyfile(source / name, target / name)
    newest = checkpoint.latest(source / "checkpoints")[0]
    content = checkpoint.manifest(newest)
    parts = {}
    for part in ("state", "hyper"):
        leaves = checkpoint.shapes(newest, content, part)
        leaves = checkpoint.load(newest, {part: leaves})[part]
        parts[part] = {name: x for name, x in leaves.items() if not formats.is_moment(name)}
    checkpoint.save(target / "checkpoints", content["step"], parts, {})
    measured = {name: round(result[name], 3) for name in ("mean_reward", "std_reward")}
    write_json(target / zoo.EVALUATION, {"episodes": EPISODES, **measured})
    return result["mean_reward"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="which; all if none is named")
    chosen = parser.parse_args().names
    for command in COMMANDS:
        name = name_of(command)
        if chosen and name not in chosen:
            continue
        with tempfile.TemporaryDirectory(prefix="thespis-zoo-") as place:
            reward = keep(train(command, Path(place)), zoo.HOME / name)
        print(f"{name:<26} {reward:>8.1f}", flush=True)


if __name__ == "__main__":
    main()
