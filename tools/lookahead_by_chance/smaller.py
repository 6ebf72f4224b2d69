"""Shrinks a program that shows a difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

from tools.lookahead_by_chance.compare import compare
from tools.lookahead_by_chance.program import Operation, Phase, Program

T = TypeVar("T", Program, Phase, Operation)

PLAIN_LINK = (125e6, 25e-6)


def shrink(program: Program, difference: str) -> Program:
    """Return the smallest program found that still shows the difference called *difference*."""
    while smaller := next((one for one in _smaller(program) if difference in _differences(one)), None):
        program = smaller
    return program


def _differences(program: Program) -> dict[str, str]:
    try:
        return compare(program).differences
    except Exception:  # a smaller program may not be valid
        return {}


def _smaller(program: Program) -> Iterator[Program]:
    for place in range(len(program.phases)):
        yield replace(program, phases=program.phases[:place] + program.phases[place + 1 :])
    yield from _with(program, faults=[], extras={}, shape="star", duplex="full", model="maxmin", threads=1)
    yield from _with(program, inbox_bytes=10**9, links=[PLAIN_LINK] * len(program.links))
    for place, phase in enumerate(program.phases):
        for other in _smaller_phases(phase):
            yield replace(program, phases=[*program.phases[:place], other, *program.phases[place + 1 :]])


def _smaller_phases(phase: Phase) -> Iterator[Phase]:
    yield from _with(phase, asides={}, second=None, timeout=None, is_named=False, after="none")
    for rank in phase.asides:
        yield replace(phase, asides={other: aside for other, aside in phase.asides.items() if other != rank})
    for rank in range(len(phase.how)):
        pauses_s, how = list(phase.pauses_s), list(phase.how)
        pauses_s[rank], how[rank] = 0.0, "sleep"
        yield from _with(phase, pauses_s=pauses_s, how=how)
    for place, (ranks, operation) in enumerate(phase.groups):
        before, after = phase.groups[:place], phase.groups[place + 1 :]
        yield replace(phase, groups=[*before, *after])
        for other in _with(operation, has_values=False, is_uneven=False, dtype="float32", root=0, length=4000):
            yield replace(phase, groups=[*before, (ranks, other), *after])


def _with(one: T, **values: Any) -> Iterator[T]:
    """Yield copies of *one*, each with one field set to its entry in *values*, if that is
    a change.
    """
    for name, value in values.items():
        if getattr(one, name) != value:
            yield replace(one, **{name: value})
