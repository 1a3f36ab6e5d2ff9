import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from thespis.core import ThespisError
from thespis.report import plots
from thespis.report.lineage_plots import draw, family_tree, read, returns, schedules

NAMES = ("rate", "gamma")


def run(folder, parents, scores, steps=1000, names=NAMES):
    """A run folder in which round i has these parents [members] and scores.

    Hypers of a member are 10^-(1 + member) before the first round; a copy has half of its
    parent's, of others as they were. One evaluation more follows the last round.
    """
    folder.mkdir(parents=True)
    members = len(scores[0])
    about = {"algo": "sac", "env": "jax:pendulum", "seeds": list(range(members))}
    (folder / "config.json").write_text(json.dumps(about))
    head = [f"{when}/{name}" for when in ("before", "after") for name in names]
    lines, log = [",".join(["step,member,parent,score,age", *head])], []
    value = {name: 0.1 ** (1 + np.arange(members)) for name in names}
    for i, (row, score) in enumerate(zip([*parents, None], scores, strict=True)):
        step = steps * (i + 1)
        log += [f"{step - steps // 2},{m},,-1" for m in range(members)]
        log += [f"{step},{m},{score[m]},-1" for m in range(members)]
        if row is None:
            break
        copied = np.asarray(row) != np.arange(members)
        after = {n: np.where(copied, x[row] / 2, x) for n, x in value.items()}
        for m in range(members):
            told = [x[n][m] for x in (value, after) for n in names]
            lines.append(",".join(map(str, [step, m, row[m], score[m], 500, *told])))
        value = after
    (folder / "lineage.csv").write_text("\n".join(lines) + "\n")
    header = "step,member,eval/mean_reward,rollout/ep_rew_mean"
    (folder / "metrics.csv").write_text("\n".join([header, *log]) + "\n")
    return folder


@pytest.fixture
def folder(tmp_path):
    """Member 2 of the end descends from 0, by way of 1."""
    parents = [[0, 0, 2, 3], [0, 1, 1, 3], [0, 1, 2, 2]]
    scores = [[4, 1, 2, 3], [5, 6, 1, 3], [5, 6, 7, 1], [5, 6, 9, 7]]
    return run(tmp_path / "run", parents, scores)


# --- the story ------------------------------------------------------------------------------


def test_the_story_is_read_from_the_two_files(folder):
    story = read(folder)
    assert story.members == 4
    np.testing.assert_array_equal(story.steps, [1000, 2000, 3000, 4000])
    np.testing.assert_array_equal(story.values[-1], [5, 6, 9, 7])
    assert [r.step for r in story.rounds] == [1000, 2000, 3000]
    assert story.edges == [0, 1000, 2000, 3000, 4000]


def test_the_winning_line_is_followed_back_through_its_parents(folder):
    story = read(folder)
    assert story.winner == 2
    assert story.line(2) == [0, 1, 2, 2]
    assert story.line(3) == [0, 1, 2, 3]
    assert story.line(0) == [0, 0, 0, 0]


def test_who_is_copied_and_replaced_in_one_round_was_copied_before(tmp_path):
    """As a t-test may do: 2 copies what 1 was, while 1 becomes a copy of 0."""
    story = read(run(tmp_path / "run", [[0, 0, 1]], [[3, 2, 1], [1, 2, 3]]))
    assert story.line(2) == [1, 2]


def test_a_member_that_was_healed_between_rounds_has_a_row_of_its_own(folder):
    path = folder / "lineage.csv"
    head, *lines = path.read_text().splitlines()
    healed = "2000,3,1,,700,0.5,0.5,0.25,0.25"  # before the round of the same step
    path.write_text("\n".join([head, *lines[:4], healed, *lines[4:]]) + "\n")
    story = read(folder)
    assert [r.step for r in story.rounds] == [1000, 2000, 2000, 3000]
    assert story.rounds[1].parent_of(3) == 1
    assert story.rounds[1].parent_of(0) == 0
    assert len(story.line(3)) == 5
    for path in draw(folder):
        assert path.stat().st_size > 5000


def test_schedules_are_what_the_line_was_told(folder):
    story = read(folder)
    np.testing.assert_allclose(story.schedule("rate", story.line(2)), [0.1, 0.05, 0.025, 0.025])
    np.testing.assert_allclose(story.schedule("rate", [0] * 4), [0.1] * 4)


def test_what_is_missing_is_said(folder, tmp_path):
    with pytest.raises(ThespisError, match="no metric 'eval/mean'"):
        read(folder, "eval/mean")
    (folder / "lineage.csv").unlink()
    with pytest.raises(ThespisError, match=r"no lineage\.csv"):
        read(folder)
    (folder / "metrics.csv").write_text("step,member,eval/mean_reward\n")
    with pytest.raises(ThespisError, match="no data yet"):
        read(folder)


# --- plots ----------------------------------------------------------------------------------


def test_all_plots_are_made_from_the_two_files(folder):
    found = draw(folder)
    assert [path.name for path in found] == ["members.png", "family_tree.png", "schedules.png"]
    for path in found:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
        assert (pixels == 255).all(-1).mean() > 0.4
        ink = [0x26] * 3 if path.stem == "family_tree" else [0x00, 0x72, 0xB2]
        assert (pixels == ink).all(-1).sum() > 500  # the winning line


@pytest.mark.parametrize("plot", [returns, schedules, family_tree])
def test_the_words_say_what_is_shown(folder, plot, monkeypatch):
    monkeypatch.setitem(plots.STYLE, "svg.fonttype", "none")
    text = plot(read(folder), folder / "plot.svg").read_text()
    for words in ("winning line (member 2)", "environment steps", "4k"):
        assert words in text
    words = {"returns": "4 members", "schedules": "gamma", "family_tree": "evaluation return"}
    assert words[plot.__name__] in text


def test_a_population_of_which_nothing_was_tuned_has_no_schedules(tmp_path):
    folder = run(tmp_path / "run", [[0, 1]], [[1, 2], [2, 3]], names=())
    assert [path.name for path in draw(folder)] == ["members.png", "family_tree.png"]
    with pytest.raises(ThespisError, match="nothing was tuned"):
        schedules(read(folder), folder / "plot.png")


def test_before_the_first_round_there_is_something_to_see(folder):
    path = folder / "lineage.csv"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    shutil.rmtree(folder / "plots", ignore_errors=True)
    assert [path.name for path in draw(folder)] == ["members.png", "family_tree.png"]


def test_a_broken_member_does_not_spoil_the_picture(folder):
    for name in ("metrics.csv", "lineage.csv"):
        path = folder / name
        path.write_text(path.read_text().replace("3000,3,1,-1", "3000,3,nan,-1"))
    assert np.isnan(read(folder).values).any()
    assert len(draw(folder)) == 3


def test_another_suffix_is_refused(folder):
    with pytest.raises(ThespisError, match="a plot is .png, .svg or .pdf"):
        returns(read(folder), folder / "plot.bmp")


def test_the_axes_of_schedules_have_few_plain_numbers(tmp_path, monkeypatch):
    monkeypatch.setitem(plots.STYLE, "svg.fonttype", "none")  # text as text
    story = read(run(tmp_path / "run", [[0, 0]], [[2, 1], [1, 2]], names=tuple("abcde")))
    ends = {"a": (3e-3, 6e-2), "b": (2e-4, 9e-3), "c": (1e-5, 1e-1), "d": (1, 2), "e": (1, 2)}
    for one in story.rounds:
        for told in (one.before, one.after):
            told |= {name: np.array(pair) for name, pair in ends.items()}
    text = schedules(story, tmp_path / "schedules.svg").read_text()
    shown = set(re.findall(r">([\d.e−-]+)<", text))
    assert {"0.005", "0.01", "0.02", "0.05"} <= shown  # of a
    assert {"0.0003", "0.001", "0.003"} <= shown  # of b
    assert {"1e-05", "0.0001", "0.1"} <= shown  # of c
    assert not shown & {"0.03", "0.006", "0.0006"}
    assert "×" not in text
    assert text.count("environment steps") - text.count("<!-- environment steps") == 5


def test_plotting_never_opens_pyplot(folder):
    script = (
        "import sys\n"
        "from thespis.report.lineage_plots import draw\n"
        "draw(sys.argv[1])\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True)
