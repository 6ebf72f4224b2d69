"""Settings of an algorithm or a workload: the keyword-only arguments of its function."""

from __future__ import annotations

import inspect
import json
import weakref
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

import pydantic

from simcluster.documents.limits import MOST_WHOLE
from simcluster.documents.yaml import describe
from simcluster.errors import UsageError
from simcluster.spelling import nearest

Function = Callable[..., Any]
"""An algorithm, or a function that returns a workload, built in or written by a user."""

Adapters = Callable[[str], pydantic.TypeAdapter[Any]]
_adapters: MutableMapping[Function, Adapters] = weakref.WeakKeyDictionary()
"""A cache of the type adapters of functions: a sweep validates the same settings many times."""


@dataclass(frozen=True)
class SettingProblem:
    """A wrong setting: its *name*, *found* and *expected*.

    *unknown* says whether the name itself is wrong. In a setting that is a mapping or a list,
    *inside* is the path to the wrong part, and *unknown* says that the last name of this path is
    unknown.
    """

    name: str
    found: str
    expected: str
    unknown: bool = False
    inside: tuple[str | int, ...] = ()


@dataclass(frozen=True)
class Setting:
    """One keyword argument: its name, its type as annotated, and its default."""

    name: str
    type: str
    default: Any
    required: bool


def settings_of(function: Function) -> list[Setting]:
    """Return the keyword-only arguments of *function*, in order."""
    hints = _hints(function)
    settings = []
    for name, parameter in _keywords(function).items():
        annotation = parameter.annotation
        required = parameter.default is parameter.empty
        words = getattr(annotation, "__name__", str(hints.get(name, "anything")))
        type_in_words = annotation if isinstance(annotation, str) else words
        settings.append(Setting(name, type_in_words, None if required else parameter.default, required))
    return settings


def validate(
    function: Function, given: Mapping[str, Any], context: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], list[SettingProblem]]:
    """Return (name -> value of each setting of *function*, all problems).

    Take values from *given*, converted to the annotated types, and the defaults for all others.
    *context* is passed to pydantic, for types that need more than the value to check it.
    """
    keywords = _keywords(function)
    adapters = _adapters_of(function)
    values: dict[str, Any] = {}
    problems = [SettingProblem(name, *_unknown(function, name), unknown=True) for name in given if name not in keywords]
    for name, parameter in keywords.items():
        if name in given:
            try:
                # Pydantic's strict JSON mode converts a list to a tuple and a string to a Path, but
                # refuses the string "3" as a number.
                values[name] = adapters(name).validate_json(json.dumps(given[name]), strict=True, context=context)
            except pydantic.ValidationError as error:
                problems += _problems(name, given[name], error)
            else:
                if isinstance(values[name], int) and abs(values[name]) > MOST_WHOLE:
                    expected = f"a whole number from -{MOST_WHOLE} to {MOST_WHOLE}"
                    problems.append(SettingProblem(name, describe(given[name]), expected))
        elif parameter.default is parameter.empty:
            problems.append(SettingProblem(name, "nothing", "a value: this setting has no default"))
        else:
            values[name] = parameter.default
    return values, problems


def _adapters_of(function: Function) -> Adapters:
    if function not in _adapters:
        hints = _hints(function)
        _adapters[function] = cache(lambda name: pydantic.TypeAdapter(hints.get(name, Any)))
    return _adapters[function]


def _problems(name: str, given: Any, error: pydantic.ValidationError) -> list[SettingProblem]:
    # (path to the part, whether its name is unknown, what was found) -> reasons. For a union,
    # pydantic reports one error per member. Join the reasons of a part into one problem: "A or B".
    reasons: dict[tuple[tuple[str | int, ...], bool, str], dict[str, None]] = {}
    for detail in error.errors():
        inside, part = _part_of(given, detail["loc"])
        unknown = bool(inside) and detail["type"] == "extra_forbidden"
        message = detail["msg"].removeprefix("Input should be ").removeprefix("a valid ")
        reason = message.replace("Extra inputs are not permitted", "")
        reasons.setdefault((inside, unknown, "unknown key" if unknown else repr(part)), {})[reason] = None
    return [
        SettingProblem(name, found, " or ".join(why), unknown, inside)
        for (inside, unknown, found), why in reasons.items()
    ]


def _part_of(given: Any, place: Sequence[str | int]) -> tuple[tuple[str | int, ...], Any]:
    """Return the longest prefix of the path *place* that exists in *given*, and the value there.

    The rest of *place* is not in the value: pydantic also names union members and missing keys.
    """
    for length, part in enumerate(place):
        if not (part in given if isinstance(given, dict) else isinstance(given, list) and isinstance(part, int)):
            return tuple(place[:length]), given
        given = given[part]
    return tuple(place), given


def _unknown(function: Function, name: str) -> tuple[str, str]:
    """Return (found, expected) for *name*, which is not a setting of *function*."""
    parameters = inspect.signature(function).parameters
    keywords = _keywords(function)
    if name in parameters and parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        return "a positional argument", f"a keyword-only one: write `*, {name}` in the signature of {function.__name__}"
    found = f"unknown setting of {function.__name__}"
    return found, nearest(name, keywords) if keywords else "none: it has no settings"


def _keywords(function: Function) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(function).parameters
    return {name: p for name, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _hints(function: Function) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise UsageError(f"{function.__name__}: {error} in its annotations; import what they name") from None
