"""Check that every setting has an effect, on the trace of events or on the weights."""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from simcluster.collectives import ScheduleOf
from simcluster.documents.settings import settings_of
from simcluster.errors import UsageError
from simcluster.lab.verify.claim import Variant
from simcluster.lab.verify.subject import Subject
from simcluster.lab.verify.verdict import Check, CheckFailed, NotClaimed, expect, judged, listed, shown

NAME = "every setting changes something"


def knobs(subject: Subject) -> Iterator[Check]:
    """Yield one line of the table for each setting."""
    if not subject.several:
        yield Check(NAME, "not claimed", "one rank alone shows nothing")
        return
    function = subject.runner.plan(subject.request()).algorithm
    settings = settings_of(function)
    if not settings:
        yield Check(NAME, "holds", "there is none")
    hints = get_type_hints(function, include_extras=True)
    for setting in settings:
        hint = hints.get(setting.name, Any)
        yield judged(f"setting {setting.name}", partial(_check, subject, setting.name, hint))


def _check(subject: Subject, name: str, hint: Any) -> str:
    """Check that another value of the setting *name*, which has the type *hint*, has an effect."""
    usual = subject.complete_settings()[name]
    if name in subject.claim.variants:
        claimed = subject.claim.variants[name]
        variants = [claimed if isinstance(claimed, Variant) else Variant(claimed)]
    else:
        values = [value for value in other_values(hint, usual) if value != usual]
        variants = [Variant(value, uneven=uneven) for value, uneven in product(values, (False, True))]
    tried: list[str] = []
    size = max(subject.middle, 2)
    for variant in variants:
        given, with_it = dict(variant.given), {**variant.given, name: variant.value}
        try:
            changed = subject.run(size, settings=with_it, uneven=variant.uneven)
        except UsageError:
            continue  # The guessed value is invalid: try the next.
        plain = subject.run(size, settings=given, uneven=variant.uneven)
        on = f"N = {size}{', one node slower' if variant.uneven else ''}"
        expect(not (plain.error or changed.error), f"{on}, {shown(with_it)}: {plain.failure or changed.failure}")
        if changed.trace_sha256 != plain.trace_sha256 or not changed.same_weights(plain):
            what = "the trace" if changed.same_weights(plain) else "the weights"
            before = subject.complete_settings(**given)[name]
            return f"{on}: {variant.value!r} in place of {before!r} changes {what}"
        tried.append(repr(variant.value) + (" with one node slower" if variant.uneven else ""))
    if not tried:
        raise NotClaimed("no other value of it is known; a claim's variants could name one")
    steps = subject.request().steps
    raise CheckFailed(f"{listed(tried)} in place of {usual!r} changes neither trace nor weights in {steps} steps")


def other_values(hint: Any, usual: Any) -> list[Any]:
    """Return values other than *usual* for a setting of the type *hint*; some may be invalid."""
    origin = get_origin(hint)
    if origin is Annotated:
        kind, *notes = get_args(hint)
        schedules = [name for note in notes if isinstance(note, ScheduleOf) for name in note.names if name != usual]
        return schedules or other_values(kind, usual)
    if origin is Literal:
        return [value for value in get_args(hint) if value != usual]
    if origin in (Union, types.UnionType):
        return [value for part in get_args(hint) for value in other_values(part, usual)]
    if hint is type(None):
        return [] if usual is None else [None]
    if hint is bool:
        return [not usual] if isinstance(usual, bool) else [True, False]
    if hint is int:
        near = usual if isinstance(usual, int) else 1
        return [near + 1, near * 3, max(near - 1, 0), 1, 0]
    if hint is float:
        number = float(usual) if isinstance(usual, (int, float)) else 1e-3
        return [number / 2, number * 2, 1e-4, 1.0, 0.0]
    return []
