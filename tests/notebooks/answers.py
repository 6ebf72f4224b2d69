"""What the answers of notebooks claim, as bounds around the numbers in their sentences.

Each claim gets variables of its notebook by the names of its arguments. Of real runs it says what no clock decides.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

Claim = Callable[..., None]
CLAIMS: dict[str, list[Claim]] = {}


def of(notebook: str) -> Callable[[Claim], Claim]:
    """Return a decorator that makes a function a claim of *notebook*."""

    def add(claim: Claim) -> Claim:
        CLAIMS.setdefault(notebook, []).append(claim)
        return claim

    return add


def check(notebook: str, variables: Mapping[str, Any]) -> None:
    """Check every claim of *notebook*, which ended with *variables*. Raise AssertionError for one that is not true."""
    for claim in CLAIMS[notebook]:
        claim(**{name: variables[name] for name in inspect.signature(claim).parameters})
