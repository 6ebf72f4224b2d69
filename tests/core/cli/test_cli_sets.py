"""`--set KEY=VALUE`: YAML values, and a sentence for what is none."""

from __future__ import annotations

import pytest

from simcluster.cli.terminal.options import overrides
from simcluster.errors import UsageError, on_command_line


def test_values_mean_what_they_would_in_a_file() -> None:
    given = ["a.b=4", "c=[1, 2]", "d= x = y ", "e="]
    assert overrides(given) == {"a.b": 4, "c": [1, 2], "d": "x = y", "e": None}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("noequals", "--set: found 'noequals', expected KEY=VALUE"),
        ("a=[1, 2", "--set a: found '[1, 2' (a [ that is not closed"),
        ("a={b: 1", "--set a: found '{b: 1' (a { that is not closed"),
        ('a="x', "--set a: found '\"x' (a quote that is not closed"),
        ("a=b: c: d", "--set a: found 'b: c: d' (a second colon in the line"),
        ("a={b: 1, b: 2}", "(a duplicate key), expected one"),
    ],
)
def test_what_is_no_value_is_told_in_a_sentence(text: str, words: str) -> None:
    with on_command_line(), pytest.raises(UsageError) as caught:
        overrides([text])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_that_are_wrong_are_told_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        overrides(["=1", "a=[", "b=1"])
    assert len(caught.value.problems) == 2
