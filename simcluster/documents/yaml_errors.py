"""Explain libyaml's errors: what was found in the line, and what to write instead."""

from __future__ import annotations

import re

import yaml

from simcluster.errors import Problem

_KEY = "YAML syntax"

MAX_DEPTH = 64
DEEPER = "deeper nesting", f"at most {MAX_DEPTH} levels"


Explanation = tuple[str, str, tuple[int, ...]]
"""(found, expected, place): the place is a line and perhaps a column, both from 1."""


def explained(error: yaml.MarkedYAMLError, text: str, file: str | None) -> Problem:
    """Return *error*, raised for *text* in *file*, as a problem that says what to write instead."""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return Problem(_KEY, _raw(error), "YAML", file)
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())] or line[mark.column : mark.column + 1] == "\t":
        return Problem(_KEY, "a tab", "spaces: YAML indents with spaces only", file, *_place(mark))
    told = _of_colon(error, lines) or _of_indent(error, line) or _of_end(error)
    found, expected, place = told or (*_in_its_words(error, line[mark.column :]), _place(mark))
    return Problem(_KEY, found, expected, file, *place)


def _in_its_words(error: yaml.MarkedYAMLError, rest: str) -> tuple[str, str]:
    """Return (found, expected) in libyaml's words, for an error before *rest* of a line."""
    if "maximum nesting depth" in (error.problem or ""):  # libyaml 0.2.6 has a limit, too
        return DEEPER
    if error.problem == "found character that cannot start any token":
        return f"a value that begins with {rest[0]}", "quotes around it"
    words = _raw(error)
    missing = words.removeprefix("did not find expected ")
    return ("", missing) if missing != words else (words, "YAML")


def _place(mark: yaml.Mark) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def _of_colon(error: yaml.MarkedYAMLError, lines: list[str]) -> Explanation | None:
    """Explain a colon in a place where no key is allowed.

    Either the line has a second colon, or the line above has none, or the line is indented too far.
    """
    mark = error.problem_mark
    if error.problem != "mapping values are not allowed in this context" or mark is None:
        return None
    line = lines[mark.line]
    if re.search(r":\s", line[: mark.column]):
        return "a second colon in the line", 'quotes around a value with ": " in it', _place(mark)
    before = next((number for number in range(mark.line - 1, -1, -1) if lines[number].strip()), None)
    if before is None:
        return None
    above = lines[before]
    if not re.search(r":(\s|$)", above):
        return repr(above.strip()[:80]), "`key: value`, with a space after the colon", (before + 1,)
    deeper = len(line) - len(line.lstrip())
    expected = f"{_spaces(len(above) - len(above.lstrip()))} as in line {before + 1}, which has a value already"
    return f"a line indented by {_spaces(deeper)}", expected, (mark.line + 1, deeper + 1)


def _of_indent(error: yaml.MarkedYAMLError, line: str) -> Explanation | None:
    """Explain a line that belongs to neither the block above it nor any enclosing block."""
    mark, begin = error.problem_mark, error.context_mark
    block = error.context in ("while parsing a block mapping", "while parsing a block collection")
    if not block or mark is None or begin is None:
        return None
    where = f"as in line {begin.line + 1}"
    if mark.column != begin.column:
        expected = f"{_spaces(begin.column)} {where}, or those of a block around it"
        return f"a line indented by {_spaces(mark.column)}", expected, _place(mark)
    if line.startswith("- ", mark.column):
        return "an item of a list among keys", f"a key, {where}", _place(mark)
    return repr(line.strip()[:80]), f"a list's next item (- ...), {where}", _place(mark)


def _of_end(error: yaml.MarkedYAMLError) -> Explanation | None:
    """Explain a bracket or a quote that is not closed."""
    begin = error.context_mark
    if begin is None:
        return None
    if error.context == "while scanning a quoted scalar":
        return "a quote that is not closed", "a second one at the end of the text", _place(begin)
    for kind, opening, closing in (("mapping", "{", "}"), ("sequence", "[", "]")):
        if error.context == f"while parsing a flow {kind}":
            found = f"a {opening} that is not closed, or a part of it without a comma after it"
            return found, f"{closing}, with commas between the parts", _place(begin)
    return None


def _spaces(number: int) -> str:
    if number == 0:
        return "no spaces"
    return f"{number} space{'' if number == 1 else 's'}"


def _raw(error: yaml.MarkedYAMLError) -> str:
    """Return libyaml's message and its context, without a leading "found"."""
    words = " ".join(part for part in (error.problem, error.context) if part)
    return words.removeprefix("found ")
