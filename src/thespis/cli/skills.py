"""`thespis skills VERB RUN`: look at skills, score them, play one, plan with them, export them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from thespis.cli.common import HELP as COMMON_HELP
from thespis.cli.common import JSON, TRUST, opened, run_and_options
from thespis.errors import ThespisError, or_all, printable
from thespis.values import Option, fields

HELP = """\
usage: thespis skills VERB RUN [options]

  plot      where every skill goes, in descriptor space
  score     do skills differ, can they be predicted, how far do they reach
  rollout   episodes of one skill, and a film of them
  plan      reach goals by planning over the skill dynamics, without training on them
  export    the networks as NumPy arrays, with a script that needs NumPy alone

Each has --help, and --json for scripts.
example: thespis skills plot runs/dads/jax-pointmass_1 -o skills.png
"""

MEMBER = Option("member", str, "Which member of several; best is the most diverse.", "best")
SEED = Option("seed", int, "Seed of the start states, and of what is drawn.", 0)
COUNT = Option("skills", int, "How many skills, if they cannot be counted.", 100)
EPISODES = Option("episodes", int, "Episodes of each skill.", 3)
STEPS = Option("steps", int, "Most steps of an episode.")
OUTPUT = Option("output", str, "Picture: .png, .svg or .pdf; by default in the run's plots folder.")


def main(argv: list[str]) -> None:
    verb, *rest = argv or ["--help"]
    if verb in COMMON_HELP:
        print(HELP, end="")
        return
    if verb not in VERBS:
        raise ThespisError(f"unknown verb skills {verb!r}{or_all(verb, VERBS)}")
    run, options, example = VERBS[verb]
    if verb == "plan":
        from thespis.skills.planner import Planner

        options = [*options, *fields(Planner)]
    options = [*options, MEMBER, SEED, TRUST, JSON]
    usage, example = f"skills {verb} RUN", f"skills {verb} {example}"
    path, given = run_and_options(usage, rest, options, example)
    if path is None:
        return
    given = {o.name: o.default for o in options} | given

    from thespis.runs.skilled import Skilled

    skilled = Skilled(opened(path, given), given["member"])
    found = run(skilled, given)
    if given["json"]:
        print(json.dumps({"run": str(skilled.run.path), "member": skilled.member, **found}))
        return
    for name, value in found.items():
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        print(printable(f"{name:<24}{text}"))


def plot(skilled: Any, given: dict[str, Any]) -> dict[str, Any]:
    from thespis.report import skills as show
    from thespis.skills.rollout import rollout

    file = picture(skilled, given, "skills.png")
    chosen = skilled.skills(given["skills"], given["seed"])
    played = rollout(skilled, chosen, given["episodes"], given["seed"], given["steps"])
    return {"plot": str(show.trajectories(played, file, title(skilled)))}


def score(skilled: Any, given: dict[str, Any]) -> dict[str, Any]:
    from thespis.skills.score import score

    return score(skilled, given["skills"], given["episodes"], given["seed"])


def roll_out(skilled: Any, given: dict[str, Any]) -> dict[str, Any]:
    from thespis.report.play import play
    from thespis.skills.rollout import rollout

    if given["skill"] is None:
        raise ThespisError("name the skill: thespis skills rollout RUN --skill 0.5,-1")
    skill = skilled.skill(given["skill"])
    played = rollout(skilled, skill[None], given["episodes"], given["seed"], given["steps"])
    found = {
        "returns": played.returns[0].tolist(),
        "diversity": played.diversity_returns[0].tolist(),
        "lengths": played.ends[0].tolist(),
        "ends": played.end_points[0].tolist(),
    }
    if given["json"]:
        found["descriptors"] = [
            path[: end + 1].tolist()
            for path, end in zip(played.descriptors[0], played.ends[0], strict=True)
        ]
    if given["output"]:
        chosen = {"path": given["output"], "seed": given["seed"], "skill": skill}
        file, _ = play(skilled.run, skilled.member, episodes=given["episodes"], **chosen)
        found["video"] = str(file)
    return found


def plan(skilled: Any, given: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    from thespis.report import skills as show
    from thespis.skills.planner import Planner, pursue

    size = skilled.algo.views.sizes["descriptor"]
    if not given["goal"] or len(given["goal"]) % size:
        raise ThespisError(f"goal: give {size} numbers each, such as --goal 1,0.5 -0.5,1")
    goals = np.array(given["goal"]).reshape(-1, size)
    planner = Planner(**{f.name: given[f.name] for f in dataclasses.fields(Planner)})
    found = pursue(skilled, goals, planner, given["steps"], given["seed"])
    blind = pursue(skilled, goals, planner, given["steps"], given["seed"], blind=True)
    file = show.pursuit(found, picture(skilled, given, "plan.png"), title(skilled))
    return {
        "score": float(found.scores.mean()),
        "score_of_random_skills": float(blind.scores.mean()),
        "scores": found.scores.tolist(),
        "last_distances": found.distances[:, -1].tolist(),
        "plot": str(file),
    }


def export(skilled: Any, given: dict[str, Any]) -> dict[str, Any]:
    from thespis.runs.files import output
    from thespis.skills.export import export

    return {"export": str(export(skilled, output(skilled.run.path, given["output"], "export")))}


def picture(skilled: Any, given: dict[str, Any], name: str) -> Path:
    from thespis.runs.files import output

    return output(skilled.run.path, given["output"], "plots", name)


def title(skilled: Any) -> str:
    return f"{skilled.algo.objective.upper()} on {skilled.run.config.env}"


VERBS: dict[str, tuple[Any, list[Option], str]] = {
    "plot": (plot, [OUTPUT, COUNT, EPISODES, STEPS], "runs/dads/jax-pointmass_1 -o skills.png"),
    "score": (score, [COUNT, EPISODES], "runs/dads/jax-pointmass_1 --json"),
    "rollout": (
        roll_out,
        [
            Option("skill", str, "Its numbers such as 0.5,-1; of one-hot skills which one."),
            dataclasses.replace(OUTPUT, help="Film: .gif or .mp4; by default none."),
            EPISODES,
            STEPS,
        ],
        "runs/dads/jax-pointmass_1 --skill 0.5,-1 -o skill.gif",
    ),
    "plan": (
        plan,
        [
            Option("goal", tuple[float, ...], "One or more goals in descriptor space: 1,0.5 0,-1."),
            OUTPUT,
            STEPS,
        ],
        "runs/dads/jax-pointmass_1 --goal 1,0.5 -0.5,1",
    ),
    "export": (
        export,
        [dataclasses.replace(OUTPUT, help="Folder; by default in the run.")],
        "runs/dads/jax-pointmass_1 -o my_skills",
    ),
}
