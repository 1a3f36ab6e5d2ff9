"""`thespis skills COMMAND RUN`: plots, scores, plays, plans with and exports learned skills."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from thespis import values
from thespis.cli.common import HELP as HELP_OPTIONS
from thespis.cli.common import JSON, SEED, TRUST, open_run, print_result, read_arguments
from thespis.errors import ThespisError, or_all
from thespis.values import Option

HELP = """\
usage: thespis skills COMMAND RUN [options]

  plot      plot the trajectories of skills in descriptor space
  score     measure how diverse, predictable and far-reaching skills are
  rollout   play episodes of one skill, and make a video of them
  plan      reach goals by planning with the skill dynamics, without further training
  export    write the networks as NumPy arrays, with a script that needs only NumPy

Each has --help, and --json for scripts.
example: thespis skills plot runs/dads/jax-pointmass_1 -o skills.png
"""

MEMBER = Option("member", str, "Member of the run: a number, or best (most diverse).", "best")
COUNT = Option("skills", int, "Number of skills to sample, if they are continuous.", 100)
EPISODES = Option("episodes", int, "Episodes per skill.", 3)
STEPS = Option("steps", int, "Maximum number of steps per episode.")
OUTPUT = Option("output", str, "Image file (.png, .svg or .pdf); by default in the run's plots.")


def main(argv: list[str]) -> None:
    name, *rest = argv or ["--help"]
    if name in HELP_OPTIONS:
        print(HELP, end="")
        return
    if name not in COMMANDS:
        raise ThespisError(f"unknown command skills {name!r}{or_all(name, COMMANDS)}")
    command, options, example = COMMANDS[name]
    if name == "plan":
        from thespis.skills.planner import Planner

        options = [*options, *values.fields(Planner)]
    seed = replace(SEED, help="Seed of the start states, and of random skills and plans.")
    options = [*options, MEMBER, seed, TRUST, JSON]
    example = f"skills {name} runs/dads/jax-pointmass_1 {example}"
    [path], args = read_arguments(f"skills {name} RUN", rest, options, example)

    from thespis.runs.skilled import Skilled

    skilled = Skilled(open_run(path, args)[0], args.member)
    result = command(skilled, args)
    number = lambda x: f"{x:.4g}" if isinstance(x, float) else str(x)
    lines = [f"{name:<24}{number(value)}" for name, value in result.items()]
    result = {"run": str(skilled.run.path), "member": skilled.member, **result}
    print_result(result, args.json, lines)


def plot(skilled: Any, args: SimpleNamespace) -> dict[str, Any]:
    from thespis.report import skills as pictures
    from thespis.skills.rollout import rollout

    file = plot_file(skilled, args, "skills.png")
    chosen = skilled.skills(args.skills, args.seed)
    played = rollout(skilled, chosen, args.episodes, args.seed, args.steps)
    return {"plot": str(pictures.trajectories(played, file, title(skilled)))}


def score(skilled: Any, args: SimpleNamespace) -> dict[str, Any]:
    from thespis.skills.score import score

    return score(skilled, args.skills, args.episodes, args.seed)


def roll_out(skilled: Any, args: SimpleNamespace) -> dict[str, Any]:
    from thespis.report.play import play
    from thespis.skills.rollout import rollout

    if args.skill is None:
        raise ThespisError("name the skill: thespis skills rollout RUN --skill 0.5,-1")
    skill = skilled.skill(args.skill)
    played = rollout(skilled, skill[None], args.episodes, args.seed, args.steps)
    result = {
        "returns": played.returns[0].tolist(),
        "diversity": played.diversity_returns[0].tolist(),
        "lengths": played.ends[0].tolist(),
        "ends": played.end_points[0].tolist(),
    }
    if args.json:
        result["descriptors"] = [
            path[: end + 1].tolist()
            for path, end in zip(played.descriptors[0], played.ends[0], strict=True)
        ]
    if args.output:
        options = {"path": args.output, "seed": args.seed, "skill": skill}
        file, _ = play(skilled.run, skilled.member, episodes=args.episodes, **options)
        result["video"] = str(file)
    return result


def plan(skilled: Any, args: SimpleNamespace) -> dict[str, Any]:
    import numpy as np

    from thespis.report import skills as pictures
    from thespis.skills.planner import Planner, pursue

    size = skilled.algo.views.sizes["descriptor"]
    if not args.goal or len(args.goal) % size:
        raise ThespisError(f"goal: give {size} numbers each, such as --goal 1,0.5 -0.5,1")
    goals = np.array(args.goal).reshape(-1, size)
    planner = Planner(**{f.name: getattr(args, f.name) for f in fields(Planner)})
    planned, random = (
        pursue(skilled, goals, planner, args.steps, args.seed, blind) for blind in (False, True)
    )
    file = pictures.pursuit(planned, plot_file(skilled, args, "plan.png"), title(skilled))
    return {
        "score": float(planned.scores.mean()),
        "score_of_random_skills": float(random.scores.mean()),
        "scores": planned.scores.tolist(),
        "last_distances": planned.distances[:, -1].tolist(),
        "plot": str(file),
    }


def export(skilled: Any, args: SimpleNamespace) -> dict[str, Any]:
    from thespis.runs.files import output
    from thespis.skills.export import export

    return {"export": str(export(skilled, output(skilled.run.path, args.output, "export")))}


def plot_file(skilled: Any, args: SimpleNamespace, name: str) -> Path:
    from thespis.runs.files import output

    return output(skilled.run.path, args.output, "plots", name)


def title(skilled: Any) -> str:
    return f"{skilled.algo.objective.upper()} on {skilled.run.config.env}"


GOAL = Option("goal", tuple[float, ...], "One or more goals in descriptor space: 1,0.5 0,-1.")
SKILL = Option("skill", str, "The skill: a vector such as 0.5,-1, or the index of a one-hot one.")
VIDEO = replace(OUTPUT, help="Video file (.gif or .mp4); by default none is written.")
FOLDER = replace(OUTPUT, help="Folder to write to; by default `export` in the run's folder.")
COMMANDS: dict[str, tuple[Any, list[Option], str]] = {
    "plot": (plot, [OUTPUT, COUNT, EPISODES, STEPS], "-o skills.png"),
    "score": (score, [COUNT, EPISODES], "--json"),
    "rollout": (roll_out, [SKILL, VIDEO, EPISODES, STEPS], "--skill 0.5,-1 -o skill.gif"),
    "plan": (plan, [GOAL, OUTPUT, STEPS], "--goal 1,0.5 -0.5,1"),
    "export": (export, [FOLDER], "-o my_skills"),
}
