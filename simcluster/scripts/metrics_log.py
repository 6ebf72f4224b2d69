"""`simcluster.log`, which adds a script's metrics to the record of its run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import SupportsFloat

from simcluster.unknown_number import UnknownNumber

_takers: list[Callable[[int, Mapping[str, float]], None]] = []


def log(*, step: int, **metrics: SupportsFloat) -> None:
    """Record metrics of *step*, such as loss=..., in the run of this process. Outside of a run, do
    nothing.

    A metric is a number, or a tensor with one element: `simcluster.log(step=step, loss=loss)`.
    Raise TypeError for anything else.
    """
    if not _takers:
        return
    found: dict[str, float] = {}
    for name, value in metrics.items():
        try:
            number = value.item() if hasattr(value, "item") else value
            # With `numerics: none` the tensor has no value that could be recorded.
            if not isinstance(number, UnknownNumber):
                found[name] = float(number)
        except (TypeError, ValueError, RuntimeError):
            given = f"{type(value).__name__} {str(value)[:80]}"
            raise TypeError(f"log({name}=...) is {given}; expected a number, or a tensor of one") from None
    _takers[-1](int(step), found)


def take_metrics(taker: Callable[[int, Mapping[str, float]], None]) -> None:
    """From now on, call *taker* with the step and the metrics of each call of `log` in this
    process.
    """
    _takers.append(taker)
