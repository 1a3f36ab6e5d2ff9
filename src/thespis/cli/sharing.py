"""Commands that share runs on the Hugging Face hub: `push`, `pull`."""

from __future__ import annotations

from dataclasses import replace

from thespis.cli.common import JSON, OUT, TRUST, imported, print_result, read_arguments
from thespis.errors import ThespisError
from thespis.values import Option


def push(argv: list[str]) -> None:
    options = [
        Option("replay", bool, "Also upload the replay buffer, which resuming needs.", False),
        Option("private", bool, "Make a new model private.", False),
        JSON,
    ]
    usage, example = "push RUN OWNER/NAME", "push runs/sac/jax-pendulum_1 me/sac-pendulum"
    words, args = read_arguments(usage, argv, options, example, 2)
    if len(words) < 2:
        raise ThespisError(f"name the model on the hub: thespis {usage}")
    hub = imported("thespis.report.hub")
    url = hub.push(*words, args.replay, args.private)
    print_result({"run": words[0], "url": url}, args.json, [f"pushed  {url}"])


def pull(argv: list[str]) -> None:
    options = [
        OUT,
        Option("max_gb", float, "Download at most this many gigabytes.", 4.0),
        replace(TRUST, help="Accept a run that names code to import; nothing is imported yet."),
        JSON,
    ]
    usage, example = "pull OWNER/NAME", "pull me/sac-pendulum"
    [name], args = read_arguments(usage, argv, options, example)
    hub = imported("thespis.report.hub")
    folder = hub.pull(name, args.out, args.trust, args.max_gb)
    lines = [f"pulled  {folder}", f"next    thespis eval {folder}"]
    print_result({"run": str(folder)}, args.json, lines)
