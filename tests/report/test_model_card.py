"""The model card of a run, whose words may be a stranger's."""

import json

import pytest

from thespis.report.model_card import model_card
from thespis.report.source import Source

yaml = pytest.importorskip("yaml")


def card(folder, curve="plots/learning_curve.png", video=None, **changes) -> str:
    config = {
        "algo": "sac",
        "env": "jax:pendulum",
        "seeds": [0, 7],
        "steps": 200,
        "command": "thespis train sac --env jax:pendulum --seeds 0 7",
        "versions": {"thespis": "0.2.0", "jax": "0.10.2"},
    }
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | changes))
    (folder / "status.json").write_text('{"state": "done", "step": 200}')
    seeds, returns = (config | changes)["seeds"], {100: (-9, -8), 200: (-4, -6)}
    pairs = [(step, m, x) for step, xs in returns.items() for m, x in zip(range(len(seeds)), xs)]
    rows = [f"{step},{m},{x}\n" for step, m, x in pairs]
    (folder / "metrics.csv").write_text("step,member,eval/mean_reward\n" + "".join(rows))
    return model_card(Source(folder), "me/run", curve, video)


def front(text: str) -> dict:
    return yaml.safe_load(text.split("---\n")[1])


def test_a_card_has_task_figures_command_versions_curve_and_how_to_pull(tmp_path):
    text = card(tmp_path, video="videos/replay.mp4")
    for part in (
        r"# sac on jax\:pendulum",
        "Last return **-5.0** (IQM of 2 seeds, 95 % interval -6.0 to -4.0)",
        "best evaluation **-4.0**",
        "| seed | last return | best | at step |",
        "| 7 | -6.0 | -6.0 | 200 |",
        "    thespis train sac --env jax:pendulum --seeds 0 7\n",
        r"- jax 0\.10\.2",
        "![Learning curve](plots/learning_curve.png)",
        '<video controls autoplay loop muted src="videos/replay.mp4">',
        "    thespis pull me/run\n",
    ):
        assert part in text
    data = front(text)
    assert data["library_name"] == "thespis"
    [model] = data["model-index"]
    values = {x["type"]: x["value"] for x in model["results"][0]["metrics"]}
    assert values == {"mean_reward": -5.0, "best_mean_reward": -4.0}


def test_the_card_of_one_seed_has_a_sentence_and_no_table(tmp_path):
    text = card(tmp_path, seeds=[0])
    assert "Last return **-4.0**, best evaluation **-4.0** (at step 200)." in text
    assert "|" not in text


def test_a_run_without_evaluations_has_a_card(tmp_path):
    card(tmp_path)
    (tmp_path / "metrics.csv").write_text("step,member,train/n_updates\n")
    text = model_card(Source(tmp_path), "me/run", None, None)
    assert "It was never evaluated." in text
    assert "model-index" not in front(text)


@pytest.mark.parametrize(
    "evil",
    [
        "x\n---\nlicense: mit",
        "<script>alert(1)</script>",
        "[click](https://evil.example) www.evil.example",
        "a: b # 'c' \"d\" - {e}",
        "x | y\n\n# heading",
        "`code`\x1b[31m\u2028\ud800",
        "```\n<b>",
    ],
)
def test_what_a_run_says_is_only_text(tmp_path, evil):
    plain = card(tmp_path / "plain")
    text = card(tmp_path / "evil", env=evil, command=evil, versions={evil: evil}, preset=evil)
    data = front(text)
    assert data.keys() == front(plain).keys()
    assert all(isinstance(tag, str) for tag in data["tags"])
    body = text.split("\n---\n", 1)[1]
    prose = [line for line in body.splitlines() if not line.startswith("    ")]
    assert len(body.splitlines()) == len(plain.split("\n---\n", 1)[1].splitlines()) - 1
    assert not any(x in line for line in prose for x in ("<s", "<b", "](h", "://", "www.", "```"))
    assert all(c.isprintable() or c == "\n" for c in text)
