"""A mark for calls that run as a piece of work on a node's device.

A node sets the mark, and a replica reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

AT_WORK: ContextVar[bool] = ContextVar("at_work", default=False)


def at_work(work: Callable[[], T]) -> T:
    """Call *work*, which `is_at_work` then sees as a piece of work, and return its result."""
    token = AT_WORK.set(True)
    try:
        return work()
    finally:
        AT_WORK.reset(token)


def is_at_work() -> bool:
    """Return whether the caller runs as part of a piece of work."""
    return AT_WORK.get()
