"""Notice when user code draws from the system's randomness, which no seed can repeat.

A few functions of Python are watched: those that `secrets`, `uuid4`, `random.SystemRandom` and
`np.random.default_rng()` draw from, and `seed` without a seed. Native code is not watched.
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

from simcluster.process.own_frames import is_own, written

Notice = Callable[[str, str], object]
"""A callback that takes (the function that drew, its location "file:line (function)")."""

_BETWEEN = {module.__file__ for module in (random, secrets, uuid)}
"""The files of Python's modules that draw on behalf of their callers."""

_WATCHED = [(os, "urandom"), (random, "_urandom"), (random, "seed"), (random.Random, "seed")]
_listeners: list[Notice] = []


@contextmanager
def system_draws_noticed(notice: Notice) -> Iterator[None]:
    """Within the context, call *notice* for each draw of user code from the system's randomness.

    In nested contexts, only the innermost callback is called.
    """
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
    """Return *function*, wrapped to call the innermost callback if user code draws with it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        given = [*(args if not args or not isinstance(args[0], random.Random) else args[1:]), *kwargs.values(), None]
        frame, what = sys._getframe(1), function.__name__
        while frame.f_code.co_filename in _BETWEEN and frame.f_back is not None:
            what, frame = frame.f_code.co_name, frame.f_back
        if (function.__name__ != "seed" or given[0] is None) and is_own(frame.f_code.co_filename):
            _listeners[-1](what, written(frame))
        return function(*args, **kwargs)

    return call
