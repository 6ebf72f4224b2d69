"""Errors in an algorithm's calls, worded identically on every backend."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from types import CodeType

from simcluster.spelling import nearest
from simcluster.transport import Any_, Cost


def wrong_peer(peer: object, rank: int, names: Sequence[str]) -> TypeError | ValueError:
    """Return the error for *peer*, which rank *rank* of the nodes *names* cannot address."""
    if isinstance(peer, str):
        known = f"{peer!r} is rank {names.index(peer)}" if peer in names else nearest(peer, names)
        return TypeError(f"a node is addressed by its rank, not by its name: {known}")
    if not isinstance(peer, int):
        return TypeError(f"a rank is a whole number, not {_shown(peer)}")
    others = f"expected 0 to {len(names) - 1} except {rank}"
    alone = "this node is alone and has no peers; send only if node.size > 1"
    return ValueError(f"rank {peer} is no peer of rank {rank}: {others if len(names) > 1 else alone}")


def check_tag(tag: object) -> None:
    """Raise TypeError unless *tag* is a string or ANY."""
    if not isinstance(tag, (str, Any_)):
        raise TypeError(f"a tag is text, not {_shown(tag)}")


def check_work(work: object, cost: object) -> None:
    """Raise TypeError unless *work* can run on a device and *cost* is a Cost."""
    code = getattr(work, "__code__", None)
    if type(code) is CodeType and not code.co_flags & inspect.CO_COROUTINE and type(cost) is Cost:
        return  # almost every call takes this fast path
    if not callable(work):
        raise TypeError(f"compute takes a function and its arguments, compute(f, x, cost=...), not {_shown(work)}")
    if _is_async(work):
        name = getattr(work, "__name__", "this one")
        raise TypeError(f"a device runs plain functions, but {name} is async: await it instead")
    if not isinstance(cost, Cost):
        raise TypeError(f"compute takes cost=Cost(flops, memory_bytes) or FREE, not {_shown(cost)}")


def _is_async(work: object) -> bool:
    """Return whether calling *work* makes a coroutine."""
    # Functions and methods have a code object, which answers faster than inspect does.
    code = getattr(getattr(work, "__func__", work), "__code__", None)
    return bool(code.co_flags & inspect.CO_COROUTINE) if code is not None else inspect.iscoroutinefunction(work)


def name_of(work: object) -> str:
    """Return the name of *work*, or of the function in a partial, for records."""
    inner = work.func if isinstance(work, functools.partial) else work
    return str(getattr(inner, "__qualname__", type(inner).__name__))


def _shown(value: object) -> str:
    text = repr(value)
    return f"the {type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
