"""Settings of an algorithm or a workload: the keyword arguments of a function, validated from its signature.

This file knows signatures and values. It must not know what a setting means.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

import pydantic

from simcluster.errors import UsageError, nearest


@dataclass(frozen=True)
class SettingProblem:
    """One wrong setting: *name*, what was *found*, what was *expected*. *unknown* tells that the name is wrong."""

    name: str
    found: str
    expected: str
    unknown: bool = False


@dataclass(frozen=True)
class Setting:
    """One keyword argument: its name, its type in words, and its default."""

    name: str
    type: str
    default: Any
    required: bool


def settings_of(function: Callable[..., Any]) -> list[Setting]:
    """The keyword-only arguments of *function*, in order."""
    hints = _hints(function)
    return [
        Setting(
            name=name,
            type=_type_in_words(function, name, hints),
            default=None if parameter.default is parameter.empty else parameter.default,
            required=parameter.default is parameter.empty,
        )
        for name, parameter in _keywords(function).items()
    ]


def validate(function: Callable[..., Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[SettingProblem]]:
    """(*given* completed by defaults and converted to the annotated types, everything that is wrong with it)."""
    keywords, hints = _keywords(function), _hints(function)
    values: dict[str, Any] = {}
    problems = [
        SettingProblem(name, "", _instead(function, name), unknown=True) for name in given if name not in keywords
    ]
    for name, parameter in keywords.items():
        if name in given:
            try:
                adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(hints.get(name, Any))
                # As JSON and strict: a list may become a tuple and text a Path, but text is no number.
                values[name] = adapter.validate_json(json.dumps(given[name]), strict=True)
            except pydantic.ValidationError as error:
                reasons = dict.fromkeys(_reason(detail) for detail in error.errors())
                problems.append(SettingProblem(name, repr(given[name]), " or ".join(reasons)))
        elif parameter.default is parameter.empty:
            problems.append(SettingProblem(name, "nothing", "a value: this setting has no default"))
        else:
            values[name] = parameter.default
    return values, problems


def _instead(function: Callable[..., Any], name: str) -> str:
    """What to write in place of *name*, which is no setting of *function*."""
    parameters, keywords = inspect.signature(function).parameters, _keywords(function)
    if name in parameters and parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        return f"a keyword-only argument: write `*, {name}` in the signature of {function.__name__}"
    return f"a setting of {function.__name__}" + (f": {nearest(name, keywords)}" if keywords else ", which has none")


def _keywords(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(function).parameters
    return {name: p for name, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise UsageError(f"{function.__name__}: {error} in its annotations; import what they name") from None


def _reason(detail: Any) -> str:
    message = str(detail["msg"])
    return message.removeprefix("Input should be ").removeprefix("a valid ")


def _type_in_words(function: Callable[..., Any], name: str, hints: Mapping[str, Any]) -> str:
    annotation = inspect.signature(function).parameters[name].annotation
    if isinstance(annotation, str):
        return annotation
    return getattr(annotation, "__name__", str(hints.get(name, "anything")))
