"""Replace functions of torch and Python in a rank's process."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any


def around(owner: Any, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that replaces *names*, functions of *owner*, with the decorated function.

    The decorated function gets the original function as its first argument.
    """

    def replace(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            setattr(owner, name, _given(getattr(owner, name), function))
        return function

    return replace


def _given(real: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def call(*args: Any, **how: Any) -> Any:
        return function(real, *args, **how)

    return call
