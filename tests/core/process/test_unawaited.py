"""Coroutines without an await: the line that made each, at no cost until one is freed in another line."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from simcluster.process.unawaited import close_unawaited, first_step_made, unawaited_noticed

CODE = """
async def send(to):
    pass

def plainly():
    send(1)

def on_condition(true=True):
    true and [send(1)]

def over_lines():
    send(
        1
    )

def again():
    for _ in range(2):
        left = send(1)

def elsewhere():
    kept = [send(1)]
    kept.clear()
    later = 3
"""


@pytest.fixture
def user_code(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[], None]]:
    file = tmp_path_factory.mktemp("own") / "algo.py"
    file.write_text(CODE)
    names: dict[str, Callable[[], None]] = {}
    exec(compile(CODE, str(file), "exec"), names)
    return names


def noticed(*functions: Callable[[], None], in_first_step: bool = False) -> tuple[list[tuple[str, str]], list[str]]:
    """Return what is noticed while *functions* are called, and what Python prints."""
    found: list[tuple[str, str]] = []
    with warnings.catch_warnings(record=True) as printed, unawaited_noticed(lambda *one: found.append(one)):
        if in_first_step:
            assert sys.get_coroutine_origin_tracking_depth() == 1
        else:
            first_step_made()
        for function in functions:
            function()
    return [(name, at.rpartition("/")[2]) for name, at in found], [str(one.message) for one in printed]


@pytest.mark.parametrize(
    ("function", "place"), [("plainly", "algo.py:6"), ("on_condition", "algo.py:9"), ("over_lines", "algo.py:12")]
)
def test_one_that_is_freed_in_its_line_is_noticed_without_tracking(
    user_code: dict[str, Callable[[], None]], function: str, place: str
) -> None:
    depths: list[int] = []
    look = lambda: depths.append(sys.get_coroutine_origin_tracking_depth())  # noqa: E731
    assert noticed(user_code[function], look) == ([("send", f"{place} ({function})")], [])
    assert depths == [0]


def test_of_those_that_are_freed_elsewhere_all_but_the_first_are_named_by_the_line_that_made_them(
    user_code: dict[str, Callable[[], None]],
) -> None:
    found, printed = noticed(*[user_code["elsewhere"]] * 3)
    assert found == [("send", "algo.py:21 (elsewhere)")] * 2
    assert [text.splitlines()[0] for text in printed] == ["coroutine 'send' was never awaited"]
    assert sys.get_coroutine_origin_tracking_depth() == 0


def test_in_the_first_step_each_is_named_by_the_line_that_made_it(
    user_code: dict[str, Callable[[], None]],
) -> None:
    found, printed = noticed(user_code["plainly"], user_code["elsewhere"], in_first_step=True)
    assert (found, printed) == ([("send", "algo.py:6 (plainly)"), ("send", "algo.py:21 (elsewhere)")], [])
    assert sys.get_coroutine_origin_tracking_depth() == 0


def test_one_without_a_line_is_not_printed_if_another_has_told_it(user_code: dict[str, Callable[[], None]]) -> None:
    found, printed = noticed(user_code["elsewhere"], first_step_made, user_code["elsewhere"], in_first_step=True)
    assert (found, printed) == ([("send", "algo.py:21 (elsewhere)")], [])


def test_one_that_an_error_holds_is_named_and_closed(tmp_path: Path) -> None:
    file = tmp_path / "algo.py"
    file.write_text("async def send(to):\n    pass\n\ndef use():\n    left = send(1)\n    return left.tensor\n")
    names: dict[str, Callable[[], None]] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    found: list[tuple[str, str]] = []
    for depth, at in ((1, f"{file}:5 (use)"), (0, "")):
        sys.set_coroutine_origin_tracking_depth(depth)
        try:
            names["use"]()
        except AttributeError as error:
            found = close_unawaited(error)
        finally:
            sys.set_coroutine_origin_tracking_depth(0)
        assert found == [("send", at)]  # and Python does not warn, which would fail this test


def test_one_that_another_replaces_is_named_by_that_line(user_code: dict[str, Callable[[], None]]) -> None:
    found, _ = noticed(user_code["again"])
    assert found[0] == ("send", "algo.py:18 (again)")
