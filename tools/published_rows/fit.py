"""Fit the parameters of engines to rows by least squares on logarithms, and predict rows left out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tools.published_rows.rows import PublishedRow

Numbers = NDArray[np.float64]

GUESSES: Final = {"memory": 0.8, "dot product": 1.0, "layer": 5e-5, "hop": 1e-3, "reduce": 3e-4, "incast": 1e-9}
"""Kind of parameter -> a guess for it without any row. It decides only where rows leave a choice."""

WHOLE: Final = ("memory", "dot product")
"""The kinds of parameters that are 1 for an engine that adds nothing; the others are 0 then."""

WEIGHT: Final = 0.05
"""The weight of a guess, where a row has 1: a parameter may be e times its guess for 5 % in a row."""

MOST_STEPS: Final = 100
SHARE: Final = 0.8
"""The share of predictions that an interval is to hold."""


@dataclass(frozen=True)
class FittedTerms:
    """The terms of *rows* as matrices, and the *parameters* in which they are written."""

    rows: tuple[PublishedRow, ...]
    parameters: tuple[str, ...]
    of_row: NDArray[np.int64]
    coefficients: Numbers
    powers: Numbers
    fixed_s: Numbers

    @classmethod
    def of(cls, rows: Sequence[PublishedRow], parameters: Sequence[str]) -> FittedTerms:
        terms = [(i, term) for i, row in enumerate(rows) for term in row.terms]
        powers = [[term.powers.get(name, 0.0) for name in parameters] for _, term in terms]
        return cls(
            tuple(rows), tuple(parameters), np.array([i for i, _ in terms]),
            np.array([term.coefficient for _, term in terms]), np.array(powers),
            np.array([row.fixed_s for row in rows]),
        )  # fmt: skip

    def seconds(self, logs: Numbers) -> tuple[Numbers, Numbers]:
        """Return the time of each row with parameters exp(*logs*), and its derivatives by *logs*."""
        each_s = self.coefficients * np.exp(self.powers @ logs)
        slopes = np.zeros((len(self.rows), len(logs)))
        np.add.at(slopes, self.of_row, each_s[:, None] * self.powers)
        return self.fixed_s + np.bincount(self.of_row, each_s, len(self.rows)), slopes

    def fitted(self) -> Numbers:
        """Return the logarithms of the parameters that fit best: Levenberg and Marquardt's steps."""
        guesses = np.log([GUESSES[next(kind for kind in GUESSES if name.startswith(kind))] for name in self.parameters])
        measured_s = np.array([row.measured_s for row in self.rows])

        def errors(logs: Numbers) -> tuple[Numbers, Numbers]:
            seconds, slopes = self.seconds(logs)
            off = np.concatenate([np.log(seconds / measured_s), WEIGHT * (logs - guesses)])
            return off, np.vstack([slopes / seconds[:, None], WEIGHT * np.eye(len(logs))])

        logs, damping = guesses, 1e-3
        off, slopes = errors(logs)
        for _ in range(MOST_STEPS):
            square = slopes.T @ slopes
            step = np.linalg.solve(square + damping * np.diag(np.diag(square)), -slopes.T @ off)
            then, then_slopes = errors(logs + step)
            gain = off @ off - then @ then
            damping *= 0.2 if gain > 0 else 5.0
            if gain > 0:
                logs, off, slopes = logs + step, then, then_slopes
            if 0 <= gain < 1e-12:
                break
        return logs


def parameters_of(rows: Sequence[PublishedRow]) -> list[str]:
    """Return the names of all parameters of *rows*, sorted."""
    return sorted({name for row in rows for term in row.terms for name in term.powers})


def fit(rows: Sequence[PublishedRow]) -> dict[str, float]:
    """Return parameter -> its value fitted to all of *rows*."""
    names = parameters_of(rows)
    return dict(zip(names, map(float, np.exp(FittedTerms.of(rows, names).fitted())), strict=True))


def predicted_s(row: PublishedRow, values: Mapping[str, float]) -> float:
    """Return the time of a token of *row* with the parameters *values*."""
    found = row.fixed_s
    for term in row.terms:
        found += term.coefficient * math.prod(values[name] ** power for name, power in term.powers.items())
    return found


Left = Callable[[PublishedRow, PublishedRow], bool]
"""(the row to predict, another row) -> whether the other row is left out as well."""


def left_out(rows: Sequence[PublishedRow], is_left: Left) -> list[float]:
    """Return the time of each row, predicted by a fit without it and the rows that *is_left* names."""
    names = parameters_of(rows)
    found, known = [], dict[tuple[int, ...], Numbers]()
    for row in rows:
        kept = tuple(i for i, other in enumerate(rows) if other is not row and not is_left(row, other))
        if kept not in known:
            known[kept] = FittedTerms.of([rows[i] for i in kept], names).fitted()
        values = dict(zip(names, map(float, np.exp(known[kept])), strict=True))
        found.append(predicted_s(row, values))
    return found


def is_larger(row: PublishedRow, other: PublishedRow) -> bool:
    """Whether *other* has the engine and kind of placement of *row*, and as many nodes or more."""
    return (other.engine, other.placement) == (row.engine, row.placement) and other.nodes >= row.nodes


def neutral_s(row: PublishedRow) -> float:
    """Return the time of a token by the device and the links alone, as for an engine without rows."""
    return predicted_s(row, {name: float(name.startswith(WHOLE)) for name in parameters_of([row])})


def pairs(rows: Sequence[PublishedRow], seconds: Sequence[float]) -> list[bool]:
    """Return whether *seconds* order each pair of rows as measured, for pairs of one setup.

    The rows of a pair differ in placement or number of nodes alone.
    """
    found = []
    for (a, a_s), (b, b_s) in itertools.combinations(zip(rows, seconds, strict=True), 2):
        if _comparable(a, b):
            found.append((a_s < b_s) == (a.measured_s < b.measured_s))
    return found


def _comparable(a: PublishedRow, b: PublishedRow) -> bool:
    devices = set(a.device.split("+")) & set(b.device.split("+"))
    same = a.setup[:-1] == b.setup[:-1] and bool(devices)
    return same and (a.nodes, a.placement) != (b.nodes, b.placement)


def factors(rows: Sequence[PublishedRow], seconds: Sequence[float]) -> tuple[float, float]:
    """Return the factors on a predicted rate between which SHARE of the measured rates are."""
    off = [row_s / row.measured_s for row, row_s in zip(rows, seconds, strict=True)]
    low, high = np.quantile(off, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return float(min(low, 1.0)), float(max(high, 1.0))
