"""What errors say: every line that matters, and nothing that only frames it."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

import simcluster
from simcluster.errors import MAX_LINES, NodeFailed, Problem, UsageError, last_words, listed, on_command_line
from simcluster.spelling import nearest


def details_of(raises: Any) -> str:
    try:
        raises()
    except BaseException as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("nothing was raised")


def simple() -> None:
    raise ValueError("one line")


def several_lines() -> None:
    raise ValueError("first\nsecond\n\tMissing key(s)")


def chained() -> None:
    try:
        several_lines()
    except ValueError as error:
        raise KeyError("the last one") from error


def with_a_note() -> None:
    error = ValueError("first")
    error.add_note("a note")
    raise error


def without_words() -> None:
    raise LookupError


def grouped_before() -> None:
    try:
        raise ExceptionGroup("group", [KeyError("inner")])
    except ExceptionGroup as group:
        raise group.exceptions[0] from group


@pytest.mark.parametrize(
    ("raises", "words"),
    [
        (simple, "ValueError: one line"),
        (several_lines, "ValueError: first\n  second\n  Missing key(s)"),
        (chained, "KeyError: 'the last one'"),
        (with_a_note, "ValueError: first\n  a note"),
        (without_words, "LookupError"),
        (grouped_before, "KeyError: 'inner'"),
        (lambda: compile("a b", "f", "exec"), "SyntaxError: invalid syntax"),
    ],
)
def test_a_failed_node_repeats_all_that_its_exception_says(raises: Any, words: str) -> None:
    assert last_words(details_of(raises)) == words
    assert str(NodeFailed(1, "mini2", details_of(raises))) == f"rank 1 (mini2) failed: {words}"


def test_what_is_no_traceback_is_repeated_from_its_end() -> None:
    assert last_words("RuntimeError: short") == "RuntimeError: short"
    assert last_words("") == "no traceback"


def test_a_very_long_message_is_cut() -> None:
    def long() -> None:
        raise ValueError("\n".join(map(str, range(100))))

    lines = last_words(details_of(long)).splitlines()
    assert lines[MAX_LINES - 1 :] == [f"  {MAX_LINES - 1}", f"  and {100 - MAX_LINES} lines more"]


def test_a_problem_says_where_what_and_what_else() -> None:
    assert str(Problem("seed", "-1", "0 or more", "a.yaml", 3, 7)) == "a.yaml:3:7: seed: found -1, expected 0 or more"
    assert str(Problem("--seed", "", "a number")) == "seed: expected a number"
    with on_command_line():
        assert str(Problem("--seed", "", "a number")) == "--seed: expected a number"
    assert str(Problem("--out", "a cannot be written: b; choose another", "")) == (
        "out: a cannot be written: b; choose another"
    )
    assert str(Problem("a.b", "unknown key", "did you mean 'c'?")) == "a.b: unknown key; did you mean 'c'?"
    assert str(Problem("a.b", "unknown key", "one of c, d")) == "a.b: unknown key; expected one of c, d"
    assert str(Problem("model", "'lv8'", "did you mean 'lv08'?")) == "model: found 'lv8'; did you mean 'lv08'?"
    error = UsageError([Problem("a", "1", "2"), Problem("b", "3", "4")])
    assert str(error) == "a: found 1, expected 2\nb: found 3, expected 4"


def test_the_nearest_word_is_named_or_else_all() -> None:
    assert nearest("pul_interval", ["polyak", "pull_interval"]) == "did you mean 'pull_interval'?"
    assert nearest("xyz", ["b", "a"]) == "one of a, b"
    assert nearest("factor", ["at", "kind"]) == "one of at, kind"  # which is far shorter


def test_the_same_slip_is_listed_ten_times() -> None:
    typed = [Problem(f"nodes.n{i}.device", f"'pi{i}'", "one of a, b", "t.yaml", i) for i in range(400)]
    other = Problem("links[3].latency", "5", "a time with its unit, such as 150 us", "t.yaml", 500)
    lines = str(UsageError([*typed, other])).splitlines()
    assert lines[:10] == [str(problem) for problem in typed[:10]]
    assert lines[10:] == ["and 390 more like it", str(other)]


def test_slips_are_alike_whatever_the_numbers_and_the_names_in_them() -> None:
    second = [
        Problem(f"nodes.n{i}", f"a second node called n{i}", f"one (the first is on line {i})") for i in range(12)
    ]
    whole = [Problem(f"links.{i}", f"a link from 'n{i}' to itself", "") for i in range(12)]
    assert len(listed(second)) == len(listed(whole)) == 11


def test_different_slips_are_all_listed() -> None:
    keys = [Problem(f"nodes.a.key{i}", "unknown key", f"did you mean 'key{chr(97 + i)}'?") for i in range(20)]
    assert len(listed(keys)) == 20
    leaves = [Problem(f"nodes.n{i}.{key}", "5", "a time") for i in range(10) for key in ("latency", "recv_overhead")]
    assert len(listed(leaves)) == 20


@pytest.mark.parametrize(
    ("name", "hint"), [("runn", "; did you mean 'run'?"), ("verifi", "; did you mean 'verify'?"), ("torch", "")]
)
def test_a_misspelt_name_of_the_package_is_named(name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(simcluster, name)
    assert str(error.value) == f"module 'simcluster' has no attribute {name!r}{hint}"
