"""Reads the spread of measured numbers from a topology document."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from simcluster.documents.fields import Fields
from simcluster.topology.model.spread import Factors, Spread
from simcluster.units import UnitError, parse_latency

LEAST_ROUNDS, MOST_ROUNDS, MOST_FACTOR = 2, 1000, 1000.0
EXPECTED = (
    f"a list of {LEAST_ROUNDS} to {MOST_ROUNDS} factors, one for each round of a calibration, each above 0 and at most "
    f"{MOST_FACTOR:g}"
)


def read_spread(part: Fields, known: Sequence[str]) -> Spread:
    """Return the spread of a link or a node."""
    if not part.has("spread"):
        return Spread()
    fields = Fields(part.document, (*part.path, "spread"), known, part.problems)
    found = {key: read_factors(fields, key) for key in known if fields.has(key)}
    lengths = {len(factors) for factors in found.values() if factors}
    if len(lengths) > 1:
        part.problem("spread", found=f"lists of {_listed(lengths)} factors", expected="lists of one length")
    return Spread(tuple((key, factors) for key, factors in found.items() if factors))


def read_factors(fields: Fields, key: str) -> Factors:
    """Return the factors under *key*; none where there are none, or something is wrong with them."""
    if not fields.has(key):
        return ()
    value = fields.get(key)
    # A latency of a round may be found to be nothing.
    least = 0.0 if key == "latency" else math.ulp(0.0)
    if (
        isinstance(value, list)
        and LEAST_ROUNDS <= len(value) <= MOST_ROUNDS
        and all(type(factor) in (int, float) and least <= factor <= MOST_FACTOR for factor in value)
    ):
        return tuple(float(factor) for factor in value)
    fields.problem(key, expected=EXPECTED)
    return ()


def read_times(fields: Fields, key: str) -> Factors:
    """Return the seconds under *key*; none where there are none, or something is wrong with them."""
    value = fields.get(key)
    if isinstance(value, list) and LEAST_ROUNDS <= len(value) <= MOST_ROUNDS:
        try:
            return tuple(parse_latency(time) for time in value)
        except UnitError as error:
            fields.problem(key, found=error.found, expected=error.expected)
    elif fields.has(key):
        expected = f"a list of {LEAST_ROUNDS} to {MOST_ROUNDS} times, one for each round of a calibration"
        fields.problem(key, expected=expected)
    return ()


def check_lengths(fields: Fields, spreads: Iterable[Spread], lists: Iterable[Factors]) -> None:
    """Note a problem if the lists of a whole topology are of several lengths: their entries are of the same rounds."""
    lengths = {spread.rounds for spread in spreads if spread.rounds} | {len(values) for values in lists if values}
    if len(lengths) > 1:
        found = f"lists of {_listed(lengths)} factors as spread"
        fields.problem(found=found, expected="lists of one length, an entry for each round of the calibration")


def _listed(lengths: Iterable[int]) -> str:
    return " and ".join(str(length) for length in sorted(lengths))
