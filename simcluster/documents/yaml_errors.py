"""The errors of libyaml in words: what was found in the line, and what to write."""

from __future__ import annotations

import re

import yaml

from simcluster.errors import Problem

_KEY = "YAML syntax"

MAX_DEPTH = 64
DEEPER = "deeper nesting", f"at most {MAX_DEPTH} levels"


def explained(error: yaml.MarkedYAMLError, text: str, file: str | None) -> Problem:
    """Return the problem that *error* is about in *text*."""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return Problem(_KEY, _raw(error), "YAML", file)
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent or line[mark.column : mark.column + 1] == "\t":
        return Problem(_KEY, "a tab", "spaces: YAML indents with spaces only", file, mark.line + 1, mark.column + 1)
    told = _of_colon(error, lines, file) or _of_indent(error, line, file) or _of_end(error, file)
    if told is not None:
        return told
    if "maximum nesting depth" in (error.problem or ""):  # a limit of libyaml 0.2.6
        found, expected = DEEPER
    elif error.problem == "found character that cannot start any token":
        found, expected = f"a value that begins with {line[mark.column]}", "quotes around it"
    else:
        words = _raw(error)
        missing = words.removeprefix("did not find expected ")
        found, expected = ("", missing) if missing != words else (words, "YAML")
    return Problem(_KEY, found, expected, file, mark.line + 1, mark.column + 1)


def _of_colon(error: yaml.MarkedYAMLError, lines: list[str], file: str | None) -> Problem | None:
    """Explain a colon where no key can be: a second one, a line too deep, or a line above without one."""
    mark = error.problem_mark
    if error.problem != "mapping values are not allowed in this context" or mark is None:
        return None
    line = lines[mark.line]
    place = (file, mark.line + 1, mark.column + 1)
    if re.search(r":\s", line[: mark.column]):
        return Problem(_KEY, "a second colon in the line", 'quotes around a value with ": " in it', *place)
    before = next((number for number in range(mark.line - 1, -1, -1) if lines[number].strip()), None)
    if before is None:
        return None
    above = lines[before]
    if not re.search(r":(\s|$)", above):
        return Problem(_KEY, repr(above.strip()[:80]), "`key: value`, with a space after the colon", file, before + 1)
    deeper = len(line) - len(line.lstrip())
    expected = f"{_spaces(len(above) - len(above.lstrip()))} as in line {before + 1}, which has a value already"
    return Problem(_KEY, f"a line indented by {_spaces(deeper)}", expected, file, mark.line + 1, deeper + 1)


def _of_indent(error: yaml.MarkedYAMLError, line: str, file: str | None) -> Problem | None:
    """Explain a line that fits neither the block above it nor one around that."""
    mark, begin = error.problem_mark, error.context_mark
    block = error.context in ("while parsing a block mapping", "while parsing a block collection")
    if not block or mark is None or begin is None:
        return None
    place = (file, mark.line + 1, mark.column + 1)
    if line.startswith("- ", mark.column) and mark.column == begin.column:
        return Problem(_KEY, "an item of a list among keys", f"a key, as in line {begin.line + 1}", *place)
    if mark.column == begin.column:
        return Problem(
            _KEY, repr(line.strip()[:80]), f"a list's next item (- ...), as in line {begin.line + 1}", *place
        )
    expected = f"{_spaces(begin.column)} as in line {begin.line + 1}, or those of a block around it"
    return Problem(_KEY, f"a line indented by {_spaces(mark.column)}", expected, *place)


def _of_end(error: yaml.MarkedYAMLError, file: str | None) -> Problem | None:
    """Explain a bracket or a quote that is not closed."""
    begin = error.context_mark
    if begin is None:
        return None
    place = (file, begin.line + 1, begin.column + 1)
    if error.context == "while scanning a quoted scalar":
        return Problem(_KEY, "a quote that is not closed", "a second one at the end of the text", *place)
    for kind, opening, closing in (("mapping", "{", "}"), ("sequence", "[", "]")):
        if error.context == f"while parsing a flow {kind}":
            found = f"a {opening} that is not closed, or a part of it without a comma after it"
            return Problem(_KEY, found, f"{closing}, with commas between the parts", *place)
    return None


def _spaces(number: int) -> str:
    return "no spaces" if number == 0 else f"{number} space{'' if number == 1 else 's'}"


def _raw(error: yaml.MarkedYAMLError) -> str:
    """Return libyaml's own words: what it found, or what it expected."""
    words = " ".join(part for part in (error.problem, error.context) if part)
    return words.removeprefix("found ")
