"""Draws of one seed: a stream per name, so that one more draw changes no other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from simcluster.rng import numpy_stream

T = TypeVar("T")


class Dice:
    """The streams of *seed*; *place* is put in front of each name."""

    def __init__(self, seed: int, *place: str) -> None:
        self.seed, self.place = seed, place
        self._streams: dict[str, np.random.Generator] = {}

    def below(self, name: str) -> Dice:
        """Dice whose names are all below *name*."""
        return Dice(self.seed, *self.place, name)

    def chance(self, name: str, probability: float) -> bool:
        return bool(self._of(name).random() < probability)

    def pick(self, name: str, options: Sequence[T], weights: Sequence[float] | None = None) -> T:
        """One of *options*, by *weights* if there are any."""
        shares = None if weights is None else np.asarray(weights, dtype=float) / sum(weights)
        return options[int(self._of(name).choice(len(options), p=shares))]

    def sample(self, name: str, options: Sequence[T], count: int) -> list[T]:
        """*count* different *options*."""
        places = self._of(name).choice(len(options), size=count, replace=False)
        return [options[int(place)] for place in places]

    def whole(self, name: str, least: int, most: int) -> int:
        """A whole number, both ends included."""
        return int(self._of(name).integers(least, most + 1))

    def uniform(self, name: str, least: float, most: float) -> float:
        """A number of three digits, so that it can be read."""
        return float(f"{self._of(name).uniform(least, most):.3g}")

    def spread(self, name: str, least: float, most: float) -> float:
        """A number of three digits, evenly spread over orders of magnitude."""
        return float(f"{math.exp(self._of(name).uniform(math.log(least), math.log(most))):.3g}")

    def some(self, name: str, options: dict[str, Any], omitted: float) -> set[str]:
        """Those *options* that are not omitted, each with that probability."""
        return {option for option in options if not self.chance(f"{name} {option}", omitted)}

    def _of(self, name: str) -> np.random.Generator:
        if name not in self._streams:
            self._streams[name] = numpy_stream(self.seed, "swarm", *self.place, name)
        return self._streams[name]
