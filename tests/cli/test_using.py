"""Commands that use runs: eval and play."""

import json
import os

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.usefixtures("kept")


def test_eval(trained, pair, say):
    told = json.loads(say("eval", trained.path, "--episodes", "3", "--json")[0])
    assert list(told) == ["run", "mean_reward", "std_reward", "returns", "lengths"]
    assert told["mean_reward"] == pytest.approx(np.mean(told["returns"]))
    assert len(told["returns"]) == 3
    both = json.loads(say("eval", pair.path, "--episodes", "3", "--json")[0])
    assert both["returns"][0] == told["returns"]
    one = json.loads(say("eval", pair.path, "--episodes", "3", "--member", "1", "--json")[0])
    assert one["returns"] == both["returns"][1]
    text = "\n".join(say("eval", pair.path, "--episodes", "3", "--best"))
    assert "best policy" in text
    assert f"{np.mean(told['returns']):,.1f}" in "\n".join(
        say("eval", trained.path, "--episodes", "3")
    )


def test_play(trained, say):
    lines = say("play", trained.path, "-o", "video.gif")
    assert lines[1].split() == ["video", "video.gif"]
    assert os.path.getsize("video.gif") > 10_000


def test_a_policy_of_the_zoo_is_played_and_evaluated_like_a_run(say):
    told = json.loads(say("zoo", "jax-grid", "-o", "walk.gif", "--json")[0])
    assert told["recorded"]["episodes"] == 100
    assert told["returns"][0] == pytest.approx(told["recorded"]["mean_reward"], abs=0.1)
    assert os.path.getsize("walk.gif") > 5_000
    found = json.loads(say("eval", "zoo:jax-grid", "--episodes", "3", "--json")[0])
    assert len(found["returns"]) == 3


@pytest.mark.slow
def test_eval_and_play_take_one_member_the_best_or_all(population, say):
    three = ["eval", population.path, "--episodes", "2", "--json"]
    all_of = json.loads(say(*three)[0])["returns"]
    assert json.loads(say(*three, "--member", "all")[0])["returns"] == all_of
    best = json.loads(say(*three, "--member", "best")[0])["returns"]
    assert best == all_of[population.member("best")]
    lines = "\n".join(say("eval", population.path, "--episodes", "2", "--member", "best"))
    assert str(population.member("best")) in lines.splitlines()[-2].split()[0]

    told = json.loads(say("play", population.path, "--member", "all", "-o", "x.gif", "--json")[0])
    assert told["video"] == "x.gif"  # one video of all, side by side
    with Image.open("x.gif") as gif:
        assert gif.size == (2 * 480, 2 * 360)
    assert [one["member"] for one in told["members"]] == [0, 1, 2]
    assert len({one["returns"][0] for one in told["members"]}) == 3
