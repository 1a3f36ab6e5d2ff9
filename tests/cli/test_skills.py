"""The commands on skills tell one line, or say in one what is wrong."""

import json

import pytest

from thespis.cli.command import main

pytestmark = pytest.mark.usefixtures("kept")


def told(capsys, *words):
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.thorough
def test_every_command_tells_one_line_of_json(skilled, capsys, tmp_path):
    path = skilled.run.path
    few = ("--skills", 4, "--episodes", 1)
    assert told(capsys, "skills", "score", path, *few)["skills"] == 4
    file = told(capsys, "skills", "plot", path, *few, "-o", tmp_path / "skills.png")["plot"]
    assert (tmp_path / "skills.png").stat().st_size > 10_000
    assert file == str(tmp_path / "skills.png")
    quick = ("--candidates", 4, "--rounds", 2)
    found = told(capsys, "skills", "plan", path, "--goal", "1,0.5", "-1,1", *quick)
    assert len(found["scores"]) == 2
    assert (path / "plots" / "plan.png").exists()
    video = tmp_path / "skill.gif"
    found = told(
        capsys, "skills", "rollout", path, "--skill", "-0.5,1", "--episodes", 1, "-o", video
    )
    assert len(found["descriptors"][0]) == 101
    assert video.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["skills", "dance", "RUN"], "unknown command skills 'dance'"),
        (["skills", "plan", "RUN"], "goal: give 2 numbers each"),
        (["skills", "plan", "RUN", "--goal", "1"], "goal: give 2 numbers each"),
        (["skills", "rollout", "RUN"], "name the skill"),
        (["skills", "rollout", "RUN", "--skill", "2,0"], "give 2 numbers from -1 to 1"),
        (["skills", "plot"], "name the run"),
    ],
)
def test_one_line_says_what_is_wrong(skilled, capsys, words, message):
    words = [str(skilled.run.path) if word == "RUN" else word for word in words]
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_help_names_every_command_and_its_options(capsys):
    assert main(["skills"]) == 0
    overview = capsys.readouterr().out
    for command in ("plot", "score", "rollout", "plan", "export"):
        assert f"  {command}" in overview
        assert main(["skills", command, "--help"]) == 0
        assert f"example: thespis skills {command} " in capsys.readouterr().out
