"""The help of `thespis train ALGO`: a page of the most common options, and one of all options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from thespis.cli.options import describe
from thespis.errors import listed
from thespis.values import Option

# Every option has a placeholder ("" for that of its type) and a line of help.
PAGE: dict[str, dict[str, tuple[str, str]]] = {
    "The task": {
        "env": (
            "ENV",
            "Train in this environment: a Gymnasium id, jax:NAME, brax:NAME, ... (see `thespis "
            "list`), or MODULE:CLASS of your own.",
        ),
        "steps": ("", "Take this many environment steps per agent."),
        "seed": ("", "Use this random seed."),
        "seeds": ("SEED ...", "Train one agent per seed, all at once: 0-4, or 1 2 3."),
        "demos": ("DEMOS", "Imitate a trained RUN, a .npz file or a Minari dataset."),
    },
    "Learning": {
        "preset": ("NAME", "Use a preset: {presets}."),
        "learning_rate": ("", "Use this learning rate for all networks."),
        "gamma": ("", "Discount future rewards by this factor per step."),
        "hidden": ("", "Use hidden layers of these widths."),
        "batch_size": ("", "Sample this many transitions per gradient update."),
        "buffer_size": ("", "Keep this many steps in the replay buffer."),
        "learning_starts": ("", "Take this many environment steps before the first update."),
        "envs": ("", "Step this many environments in parallel."),
        "updates_per_step": ("", "Make this many gradient updates per environment step."),
        "normalize_observations": ("", "Normalise observations by their running statistics."),
    },
    "Evaluation": {
        "eval_freq": ("", "Evaluate every N steps; by default at most 20 times in a run."),
        "eval_episodes": ("", "Play this many episodes in every evaluation."),
        "stop_reward": ("", "Stop as soon as evaluations reach this mean reward."),
    },
    "Output": {
        "out": ("FOLDER", "Write the run to a new folder below this one."),
        "checkpoint_freq": ("", "Save a checkpoint every N steps; by default 10 times in a run."),
        "config": ("FILE", "Read options from this file; `thespis config ALGO` prints one."),
        "name": ("", "Name the run's folder, for example {{env}}-{{critic_lr}}."),
        "wandb": ("PROJECT", "Log to Weights & Biases; see also --mlflow and --trackio."),
        "probe": ("", "Measure the speed in a short run; --no-probe only computes sizes."),
        "dry_run": ("", "Print what would be run, and write nothing."),
        "json": ("", "Print the result as one line of JSON."),
    },
    "A population": {
        "members": ("", "Train this many agents, with consecutive seeds from --seed on."),
        "pbt": ("", "Tune their hyper-parameters by population-based training."),
    },
}


EXAMPLES = {  # environments that suit algorithms; most learn jax:pendulum
    "discrete-sac": "--env jax:cartpole --steps 20000",
    "sqil": "--env jax:pendulum --steps 20000 --demos expert.npz",
    "dads": "--env jax:pointmass --steps 20000",
    "masac": "--env jax:meeting --steps 20000",
}


def help_page(
    command: str,
    algo: str,
    about: str,
    groups: dict[str, list[Option]],
    presets: dict[str, dict[str, Any]],
    everything: bool,
) -> str:
    """Returns the help of all options in titled groups, or only of those in `PAGE`."""
    env = "" if command == "config" else " --env ENV"
    parts = [f"usage: thespis {command} {algo}{env} [options]", about]
    example = EXAMPLES.get(algo, "--env jax:pendulum --steps 20000")
    example = f"example: thespis {command} {algo.replace('ALGO', 'sac')} {example}"
    if everything:
        parts += [f"{title}:\n{describe(options)}" for title, options in groups.items() if options]
        last = [f"--preset {n:<15} {x.get('for', '')}".rstrip() for n, x in presets.items()]
        last.append(
            "The prefixes algo. and hp. are optional; the names of Stable-Baselines3 work, too."
        )
        return "\n\n".join([*parts, "\n".join([*last, f"{example} --hp.gamma 0.98"])])
    options = [option for group in groups.values() for option in group]
    short = {o.name.removeprefix("algo.").removeprefix("hp."): o for o in options}
    short |= rate_option(short)
    if not presets:
        short.pop("preset", None)
    fill = lambda text: text.format(presets=listed(list(presets), "or"))
    for title, lines in PAGE.items():
        options = [
            replace(short[name], name=name, metavar=metavar, help=fill(text))
            for name, (metavar, text) in lines.items()
            if name in short
        ]
        parts.append(f"{title}:\n{describe(options)}")
    last = f"`thespis {command} {algo} --help-all` lists every option."
    return "\n\n".join([*parts, f"{last}\n{example} --seeds 0-4"])


def rate_option(options: dict[str, Option]) -> dict[str, Option]:
    """Returns `--learning-rate`, with its default if all rates have the same; {} without rates."""
    rates: list[Any] = [o.default for name, o in options.items() if name.endswith("_lr")]
    same = rates[0] if len({*rates}) == 1 else None
    return {"learning_rate": Option("learning_rate", float, default=same)} if rates else {}
