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
    ("name", "told"),
    [
        ("jax:ponte", "; did you mean jax:point?"),  # and not all that begins with jax:
        ("JAX:Point", "; did you mean jax:point?"),
        ("jx:point", "; did you mean jax:point?"),
        ("point", "; did you mean jax:point?"),
        ("jax:", ""),
        ("brax:hopper", ""),
    ],
)
def test_a_prefix_makes_no_name_near(name, told):
    assert did_you_mean(name, ["jax:point", "jax:pendulum", "jax:catch"]) == told
