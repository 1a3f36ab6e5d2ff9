import json
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from PIL import Image

from thespis.core import ThespisError
from thespis.report import plots
from thespis.report.plots import Curve, curves_of, learning_curve, thousands


def run(folder, seeds, algo="sac", env="jax:pendulum", points=6, **config):
    """A run folder whose member m scores 100 seed + step / 1000 at every second line."""
    folder.mkdir(parents=True)
    config = {"algo": algo, "env": env, "seeds": seeds, **config}
    (folder / "config.json").write_text(json.dumps(config))
    lines = ["step,member,rollout/ep_rew_mean,eval/mean_reward"]
    for i in range(2 * points):
        for member, seed in enumerate(seeds):
            value = "" if i % 2 else 100 * seed + i
            lines.append(f"{1000 * i},{member},-1.5,{value}")
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    return folder


def curve(seeds, label="SAC", env="jax:pendulum", points=20):
    rng = np.random.default_rng(seeds)
    steps = np.linspace(0, 20_000, points)
    return Curve(label, [(steps, rng.normal(size=points).cumsum()) for _ in range(seeds)], env)


def test_members_of_runs_of_one_kind_are_the_seeds_of_one_curve(tmp_path):
    one = curves_of([run(tmp_path / "a", [0, 1, 2]), run(tmp_path / "b", [3])])
    assert len(one) == 1
    assert (one[0].label, one[0].env) == ("SAC", "jax:pendulum")
    assert [values[0] for _, values in one[0].runs] == [0, 100, 200, 300]
    for steps, values in one[0].runs:  # empty cells are left out
        np.testing.assert_array_equal(steps, np.arange(6) * 2000)
        np.testing.assert_array_equal(values - values[0], steps / 1000)


def test_runs_that_differ_in_algorithm_environment_or_preset_are_different_curves(tmp_path):
    folders = [
        run(tmp_path / "a", [0]),
        run(tmp_path / "b", [0], algo="td3"),
        run(tmp_path / "c", [0], preset="qdax"),
        run(tmp_path / "d", [0], env="jax:cartpole", algo="discrete_sac"),
        run(tmp_path / "e", [0], algo="sqil", options={"objective": "sqil"}),
        run(tmp_path / "f", [1], algo="sqil", options={"objective": "ls-iq"}),
    ]
    found = [(c.label, c.env, len(c.runs)) for c in curves_of(folders)]
    assert found == [
        ("SAC", "jax:pendulum", 1),
        ("TD3", "jax:pendulum", 1),
        ("SAC qdax", "jax:pendulum", 1),
        ("DISCRETE SAC", "jax:cartpole", 1),
        ("SQIL", "jax:pendulum", 1),
        ("SQIL ls-iq", "jax:pendulum", 1),
    ]


def labels(*folders):
    return [(found.label, len(found.runs)) for found in curves_of(folders)]


def test_runs_that_learn_differently_are_different_curves_named_after_the_difference(tmp_path):
    slow, fast = {"actor_lr": 1e-4, "tau": 0.005}, {"actor_lr": 3e-4, "tau": 0.005}
    folders = [
        run(tmp_path / "a", [0], hp=slow, steps=1000, threads=1, eval_freq=50),
        run(tmp_path / "b", [1], hp=fast),
        run(tmp_path / "c", [2], hp=slow | {"actor_lr": float(np.float32(1e-4))}, steps=2000),
    ]
    assert labels(*folders) == [("SAC, actor_lr = 0.0001", 2), ("SAC, actor_lr = 0.0003", 1)]
    assert labels(folders[0], folders[2]) == [("SAC", 2)]
    wide = run(tmp_path / "d", [1], hp=slow, options={"hidden": [64, 64]}, envs=4)
    narrow = run(tmp_path / "e", [2], hp=slow, options={"hidden": [8]}, envs=1)
    assert labels(wide, narrow) == [
        ("SAC, envs = 4, hidden = 64 64", 1),
        ("SAC, envs = 1, hidden = 8", 1),
    ]


def test_many_differences_are_counted(tmp_path):
    hp = [dict.fromkeys(("actor_lr", "critic_lr", "gamma", "tau"), x) for x in (0.1, 0.2)]
    found = labels(*(run(tmp_path / str(i), [i], hp=hp[i]) for i in (0, 1)))
    assert found[0] == ("SAC, actor_lr = 0.1, critic_lr = 0.1, 2 more", 1)


def test_members_of_one_run_may_differ(tmp_path):
    assert labels(run(tmp_path / "a", [0, 1], hp={"tau": [0.1, 0.2]})) == [("SAC", 2)]


def test_a_run_that_follows_a_schedule_is_no_plain_one(tmp_path):
    plain = run(tmp_path / "plain", [0], hp={"tau": 0.005}, schedule=[])
    begun = {"hp": {"tau": 0.01}, "schedule": [[100, {"tau": 0.02}]]}
    again = [run(tmp_path / f"again_{seed}", [seed], **begun) for seed in (1, 2)]
    assert labels(plain, *again) == [("SAC", 1), ("SAC, scheduled", 2)]
    other = run(tmp_path / "other", [3], hp={"tau": 0.01}, schedule=[[200, {"tau": 0.02}]])
    assert labels(*again, other) == [("SAC, scheduled (again_1)", 2), ("SAC, scheduled (other)", 1)]


def test_populations_differ_in_what_is_fixed_and_how_they_are_tuned(tmp_path):
    tuned = {"tuner": "pbt", "pbt": {"interval": 100}}
    first = run(tmp_path / "a", [0, 1], **tuned, hp={})
    fixed = run(tmp_path / "b", [2, 3], **tuned, hp={"tau": 0.005})
    more = run(tmp_path / "c", [4, 5, 6], **tuned, hp={})
    assert labels(first, fixed) == [("SAC pbt", 2), ("SAC pbt, tau = 0.005", 2)]
    assert labels(first, more) == [("SAC pbt, members = 2", 2), ("SAC pbt, members = 3", 3)]


def test_settings_that_suit_one_environment_have_one_name_in_all(tmp_path):
    pendulum = run(tmp_path / "a", [0], hp={"tau": 0.01})
    cartpole = run(tmp_path / "b", [0], hp={"tau": 0.02}, env="jax:cartpole")
    assert labels(pendulum, cartpole) == [("SAC", 1), ("SAC", 1)]
    other = run(tmp_path / "c", [0], hp={"tau": 0.02})
    assert [label for label, _ in labels(pendulum, cartpole, other)] == [
        "SAC, tau = 0.01",
        "SAC, tau = 0.02",
        "SAC, tau = 0.02",
    ]


def test_a_seed_that_was_run_twice_does_not_count_as_two(tmp_path):
    found = curves_of([run(tmp_path / "first", [0, 1]), run(tmp_path / "second", [1, 2])])
    assert [(c.label, len(c.runs)) for c in found] == [("SAC (first)", 2), ("SAC (second)", 2)]


def test_a_torn_last_line_is_ignored(tmp_path):
    folder = run(tmp_path / "a", [0])
    with open(folder / "metrics.csv", "a") as file:
        file.write("12000,0,-1.5,12")  # the power went here: it was to be 1200
    steps, values = curves_of([folder])[0].runs[0]
    assert (steps[-1], values[-1]) == (10_000, 10)


def test_any_column_can_be_plotted(tmp_path):
    (found,) = curves_of([run(tmp_path / "a", [0])], "rollout/ep_rew_mean")
    assert len(found.runs[0][0]) == 12


def test_an_unknown_metric_names_the_nearest_columns(tmp_path):
    with pytest.raises(ThespisError, match="eval/mean_rewards.*try eval/mean_reward"):
        curves_of([run(tmp_path / "a", [0])], "eval/mean_rewards")


def test_a_run_without_data_says_so(tmp_path):
    empty = run(tmp_path / "empty", [0], points=0)
    with pytest.raises(ThespisError, match="empty has no data yet"):
        curves_of([empty])
    (empty / "metrics.csv").unlink()
    with pytest.raises(ThespisError, match="empty has no data yet"):
        curves_of([empty])
    (empty / "metrics.csv").write_text("step,member,eval/mean_reward\n0,0,\n")
    with pytest.raises(ThespisError, match="no eval/mean_reward yet"):
        curves_of([empty])


def test_a_folder_that_is_no_run_is_an_error(tmp_path):
    with pytest.raises(ThespisError, match="no run at"):
        curves_of([tmp_path])
    with pytest.raises(ThespisError, match="no runs to plot"):
        curves_of([])


@pytest.mark.parametrize(
    ("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")]
)
def test_the_suffix_chooses_the_format(tmp_path, suffix, magic):
    path = learning_curve([curve(5), curve(3, "TD3")], tmp_path / "plots" / f"curve{suffix}")
    content = path.read_bytes()
    assert content.startswith(magic)
    assert len(content) > 5000


def test_a_plot_shows_every_curve_in_its_colour(tmp_path):
    path = learning_curve([curve(5), curve(4, "TD3")], tmp_path / "curve.png")
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    for colour in ([0x00, 0x72, 0xB2], [0xD5, 0x5E, 0x00]):
        assert (pixels == colour).all(-1).sum() > 1000
    assert (pixels == 255).all(-1).mean() > 0.6  # and is mostly paper


def test_the_legend_counts_seeds_and_every_environment_has_a_panel(tmp_path, monkeypatch):
    monkeypatch.setitem(plots.STYLE, "svg.fonttype", "none")  # text as text
    curves = [curve(5), curve(1, "TD3"), curve(3, env="jax:cartpole")]
    text = learning_curve(curves, tmp_path / "curve.svg", title="Two tasks").read_text()
    for words in (
        "SAC (3–5 seeds)",
        "TD3 (1 seed)",
        "jax:pendulum",
        "jax:cartpole",
        "Two tasks",
        "environment steps",
        "evaluation return",
        "IQM over seeds",
        "20k",
    ):
        assert words in text
    text = learning_curve([curve(1)], tmp_path / "one.svg", statistic="mean").read_text()
    assert "bootstrap" not in text  # one seed has no band
    assert "opacity: 0.18" not in text  # nor has its entry in the legend


def test_every_panel_has_titles_on_its_axes(tmp_path, monkeypatch):
    monkeypatch.setitem(plots.STYLE, "svg.fonttype", "none")
    curves = [curve(2, env=f"task {i}") for i in range(4)]
    text = learning_curve(curves, tmp_path / "curve.svg").read_text()
    assert (text.count("environment steps"), text.count("evaluation return")) == (4, 4)


def test_the_same_curves_give_the_same_file(tmp_path):
    for suffix in ("svg", "pdf"):
        a, b = (learning_curve([curve(3)], tmp_path / f"{name}.{suffix}") for name in "ab")
        assert a.read_bytes() == b.read_bytes()


def test_no_name_reaches_latex_whatever_a_matplotlibrc_says(tmp_path, monkeypatch):
    """One in the current folder is obeyed by Matplotlib, and LaTeX obeys what it is given."""
    run(tmp_path / "a", [0], env="jax:$\\input{x}$")
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", True)
    monkeypatch.setattr(subprocess, "check_output", lambda *command, **given: pytest.fail("LaTeX"))
    monkeypatch.setattr(subprocess, "Popen", lambda *command, **given: pytest.fail("LaTeX"))
    learning_curve(curves_of([tmp_path / "a"]), tmp_path / "a.png")


def test_a_single_evaluation_and_runs_of_different_lengths_can_be_drawn(tmp_path):
    long, short = curve(2), curve(1, points=1)
    learning_curve([Curve("SAC", long.runs + short.runs), short], tmp_path / "curve.png")


def test_what_cannot_be_drawn_is_an_error(tmp_path):
    with pytest.raises(ThespisError, match=r"\.png, \.svg or \.pdf"):
        learning_curve([curve(2)], tmp_path / "curve.bmp")
    with pytest.raises(ThespisError, match="nothing to plot"):
        learning_curve([], tmp_path / "curve.png")
    large = np.array([1e308, -1e308])
    with pytest.raises(ThespisError, match=r"cannot draw curve.png: .*; check the values"):
        learning_curve([Curve("SAC", [(np.arange(2.0), large)])], tmp_path / "curve.png")
    assert not any(tmp_path.iterdir())


def test_steps_are_short_words():
    assert [thousands(x) for x in (0, 500, 2500, 20_000, 1_500_000)] == [
        "0",
        "500",
        "2.5k",
        "20k",
        "1.5M",
    ]


def test_plotting_never_opens_pyplot(tmp_path):
    """A server has no display, and pyplot would keep every figure in memory."""
    script = (
        "import sys, numpy as np\n"
        "from thespis.report.plots import Curve, learning_curve\n"
        "learning_curve([Curve('SAC', [(np.arange(3.0), np.ones(3))])], sys.argv[1])\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "curve.png")], check=True)
