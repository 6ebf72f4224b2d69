"""Short phrases for lines of the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simcluster.verify.verdict import Check


def held(name: str, reason: str) -> Check:
    return Check(name, "holds", reason)


def failed(name: str, reason: str) -> Check:
    return Check(name, "fails", reason)


def not_claimed(name: str, reason: str) -> Check:
    return Check(name, "not claimed", reason)


def listed(things: Iterable[object]) -> str:
    """Join words: 1, 2 and 4."""
    words = [str(thing) for thing in things]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def shown(settings: Mapping[str, Any]) -> str:
    """Format settings: pull_interval=4, polyak=0.5; or `the defaults`."""
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "the defaults"
