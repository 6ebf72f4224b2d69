"""Whether the present call is a piece of work of a node's device: a node marks each, and a replica looks."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

_at_work: ContextVar[bool] = ContextVar("at_work", default=False)


def at_work(work: Callable[[], T]) -> T:
    """Call *work* as a piece of work."""
    token = _at_work.set(True)
    try:
        return work()
    finally:
        _at_work.reset(token)


def is_at_work() -> bool:
    """Return whether this is called by a piece of work."""
    return _at_work.get()
