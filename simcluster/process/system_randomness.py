"""Draws of user code from the system's randomness, which no seed repeats: noticed with their lines.

Python's modules pass them through a few functions, which are watched: what `secrets`, `uuid4`, `random.SystemRandom`
and `np.random.default_rng()` draw from, and seeds of nothing. Native code passes through none of them.
"""

from __future__ import annotations

import os
import random
import secrets
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from simcluster.process.places import is_own, written

Notice = Callable[[str, str], object]
"""Called with (the function that drew, "file:line (function)")."""

_BETWEEN = {module.__file__ for module in (random, secrets, uuid)}
_WATCHED = [(os, "urandom"), (random, "_urandom"), (random, "seed"), (random.Random, "seed")]
_listeners: list[Notice] = []


@contextmanager
def system_draws_noticed(notice: Notice) -> Iterator[None]:
    """Call *notice* for each draw of user code in the block; of nested blocks, the innermost hears of it."""
    real = [] if _listeners else [(owner, name, getattr(owner, name)) for owner, name in _WATCHED]
    for owner, name, function in real:
        setattr(owner, name, _watching(function))
    _listeners.append(notice)
    try:
        yield
    finally:
        _listeners.remove(notice)
        for owner, name, function in real:
            setattr(owner, name, function)


def _watching(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        given = [*(args if not args or not isinstance(args[0], random.Random) else args[1:]), *kwargs.values(), None]
        frame, what = sys._getframe(1), function.__name__
        while frame.f_code.co_filename in _BETWEEN and frame.f_back is not None:
            what, frame = frame.f_code.co_name, frame.f_back
        if (function.__name__ != "seed" or given[0] is None) and is_own(frame.f_code.co_filename):
            _listeners[-1](what, written(frame))
        return function(*args, **kwargs)

    return call
