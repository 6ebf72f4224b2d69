"""Levels of tests: fast ones, `slow` ones, and `exhaustive` ones, which only `make test-all` runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sample_of(cases: Iterable[Any], every: int = 3, first: int = 0) -> list[Any]:
    """Return *cases* for `parametrize`, all but every *every*-th one from *first* on as exhaustive ones."""
    return [
        case if number % every == first else pytest.param(*_values(case), marks=pytest.mark.exhaustive)
        for number, case in enumerate(cases)
    ]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
