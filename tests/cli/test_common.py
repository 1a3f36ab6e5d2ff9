"""What commands share: words, options, help, and results for people and for programs."""

import json

import pytest

from thespis.cli.common import BEST, JSON, HelpPrinted, overshadowed, print_result, read_arguments
from thespis.errors import ThespisError

EXAMPLE = "eval runs/sac/jax-pendulum_1"


def test_options_that_are_not_given_have_their_defaults():
    words, args = read_arguments("eval RUN", ["here", "--best"], [BEST, JSON], EXAMPLE)
    assert words == ["here"]
    assert vars(args) == {"best": True, "json": False}


@pytest.mark.parametrize("asked", ["--help", "-h", "--help-all"])
def test_help_is_printed_whatever_else_is_there(asked, capsys):
    with pytest.raises(HelpPrinted):
        read_arguments("eval RUN", ["--nonsense", asked], [BEST], EXAMPLE)
    told = capsys.readouterr().out
    assert told.startswith("usage: thespis eval RUN [options]\n\nPlay episodes with the trained ")
    assert told.endswith(f"example: thespis {EXAMPLE}\n")
    assert "--best" in told


@pytest.mark.parametrize(
    ("usage", "argv", "words", "message"),
    [
        ("eval RUN", [], 1, "name the run: thespis eval RUN"),
        ("report RUN ...", [], None, "name at least one run: thespis report RUN"),
        ("check-env ENV", [], 1, "name the environment: thespis check-env ENV"),
        ("pull OWNER/NAME", [], 1, "name the model on the hub: thespis pull OWNER/NAME"),
        ("completion {bash,fish}", [], 1, "name the shell: thespis completion {bash,fish}"),
        ("eval RUN", ["a", "b"], 1, "unexpected 'b'"),
        ("list", ["a"], 0, "unexpected 'a'"),
    ],
)
def test_too_few_or_too_many_words_are_told(usage, argv, words, message):
    with pytest.raises(ThespisError, match=message):
        read_arguments(usage, argv, [], EXAMPLE, words)
    assert read_arguments("list", [], [], EXAMPLE, 0)[0] == []


def test_results_are_one_line_of_json_or_lines_that_move_no_cursor(capsys):
    result = {"run": "a\x1b[2J", "step": 3}
    print_result(result, True, [])
    assert json.loads(capsys.readouterr().out) == result
    print_result(result, False, ["run a\x1b[2J", "step 3"])
    assert capsys.readouterr().out == "run a\\x1b[2J\nstep 3\n"


def test_names_that_nobody_announces_are_overshadowed_by_none():
    assert overshadowed("sac", "CartPole-v1", None, "mine") == []
