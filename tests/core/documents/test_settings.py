"""Settings come from the signature: defaults, conversion, every error at once."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from annotated_types import Gt
from pydantic import PositiveInt

from simcluster.documents.settings import settings_of, validate


async def algorithm(
    node: Any,
    replica: Any,
    *,
    interval: PositiveInt = 1,
    rate: Annotated[float, Gt(0)] = 0.5,
    rule: Literal["keep", "drop"] = "keep",
    limit_s: float | None = None,
) -> None:
    """Does nothing."""


def test_defaults_complete_what_is_given() -> None:
    values, problems = validate(algorithm, {"interval": 3})
    assert problems == []
    assert values == {"interval": 3, "rate": 0.5, "rule": "keep", "limit_s": None}


def test_a_whole_number_serves_as_a_float_and_null_as_none() -> None:
    values, problems = validate(algorithm, {"rate": 2, "limit_s": None})
    assert problems == []
    assert values["rate"] == 2.0
    assert isinstance(values["rate"], float)


def test_every_problem_is_found_at_once_with_the_right_spelling() -> None:
    _, problems = validate(algorithm, {"intervall": 2, "rate": -1, "rule": "kep", "interval": 1.5})
    found = {problem.name: problem for problem in problems}
    assert set(found) == {"intervall", "rate", "rule", "interval"}
    assert "did you mean 'interval'?" in found["intervall"].expected
    assert found["intervall"].unknown
    assert "greater than 0" in found["rate"].expected
    assert "'keep' or 'drop'" in found["rule"].expected
    assert "integer" in found["interval"].expected


def test_text_is_no_number() -> None:
    for text in ("3", "many", ""):
        _, problems = validate(algorithm, {"interval": text})
        assert [problem.name for problem in problems] == ["interval"], text


def test_a_setting_without_a_default_is_asked_for() -> None:
    async def needs(node: Any, replica: Any, *, count: int) -> None: ...

    values, problems = validate(needs, {})
    assert values == {}
    assert [(problem.name, problem.expected) for problem in problems] == [
        ("count", "a value: this setting has no default")
    ]


def test_settings_can_be_listed_with_type_and_default() -> None:
    listed = settings_of(algorithm)
    assert [(setting.name, setting.type, setting.default) for setting in listed[:3]] == [
        ("interval", "PositiveInt", 1),
        ("rate", "Annotated[float, Gt(0)]", 0.5),
        ("rule", "Literal['keep', 'drop']", "keep"),
    ]


@pytest.mark.parametrize("name", ["sync_ps", "edp", "all_reduce_dp"])
def test_the_shipped_algorithms_explain_every_setting(name: str) -> None:
    from simcluster.algorithms import ALGORITHMS

    text = ALGORITHMS[name].__doc__ or ""
    for setting in settings_of(ALGORITHMS[name]):
        assert f"*{setting.name}*" in text, f"{name} does not say what {setting.name} does"
