"""Text that is not YAML: the line, what was found there, and what to write."""

from __future__ import annotations

import pytest

from simcluster.documents.yaml import loads
from simcluster.errors import UsageError


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n\tb: 2\n", "f.yaml:2:1: YAML syntax: found a tab, expected spaces"),
        ("a: 1\n b: 2\n", "f.yaml:2:2: YAML syntax: found a line indented by 1 space, expected no spaces as in"),
        (
            "a:\n  b: 1\n   c: 2\n",
            "f.yaml:3:4: YAML syntax: found a line indented by 3 spaces, expected 2 spaces as in",
        ),
        ("a:\n  b: 1\n c: 2\n", "f.yaml:3:2: YAML syntax: found a line indented by 1 space, expected no spaces as in"),
        ("a: b: c\n", "f.yaml:1:5: YAML syntax: found a second colon in the line, expected quotes"),
        ("a:1\nb: 2\n", "f.yaml:1: YAML syntax: found 'a:1', expected `key: value`, with a space after the colon"),
        ("a: 1\n- b\n", "f.yaml:2:1: YAML syntax: found an item of a list among keys, expected a key, as in line 1"),
        ("a: {b: 1\nc: 2\n", "f.yaml:1:4: YAML syntax: found a { that is not closed"),
        ("a: [1\n", "f.yaml:1:4: YAML syntax: found a [ that is not closed"),
        ('a: "b\n', "f.yaml:1:4: YAML syntax: found a quote that is not closed"),
        ("a: @b\n", "f.yaml:1:4: YAML syntax: found a value that begins with @, expected quotes around it"),
        ("a: `b`\n", "f.yaml:1:4: YAML syntax: found a value that begins with `, expected quotes around it"),
    ],
)
def test_an_error_of_syntax_has_its_place_and_a_remedy(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        loads(text, "f.yaml")
    assert str(error.value).startswith(said)
