"""Messages: what anybody may have written is shown, and not obeyed."""

import pickle

import pytest

from thespis.errors import LINE, Fault, ThespisError, did_you_mean, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("jax:pendulum, 3 ± 1 ★", "jax:pendulum, 3 ± 1 ★"),
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("a\rb\x9bc", r"a\rb\x9bc"),
        ("right\u202eleft", r"right\u202eleft"),
        ("no text \udcff", r"no text \udcff"),
        ("two\nlines", "two\nlines"),
    ],
)
def test_a_terminal_obeys_nothing_that_is_quoted(text, shown):
    assert printable(text) == shown
    assert str(ThespisError(text)) == shown
    assert str(Fault(text, 0, 1, "x")).startswith(shown)


def test_a_line_has_an_end():
    assert len(str(ThespisError("x" * 10**7))) < LINE + 10


def test_errors_can_be_sent_to_other_processes():
    assert str(pickle.loads(pickle.dumps(ThespisError("why")))) == "why"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("brax:antt", "; did you mean brax:ant?"),
        ("brax:pendulum", "; did you mean brax:inverted_pendulum?"),
        ("bax:ant", "; did you mean brax:ant or brax:humanoid?"),
        ("Brax:Ant", "; did you mean brax:ant?"),
        ("brax:", ""),
        ("brax:zzz", ""),
    ],
)
def test_names_with_a_prefix_are_compared_by_what_follows_it(name, near):
    known = ["brax:ant", "brax:humanoid", "brax:inverted_pendulum", "jax:pendulum"]
    assert did_you_mean(name, known) == near
