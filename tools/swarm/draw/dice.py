"""Random draws of one seed. Each name has a separate stream, so a new draw changes no other one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from simcluster.rng import numpy_stream

T = TypeVar("T")


class Dice:
    """The random streams of *seed*. *place* is a prefix of their names."""

    def __init__(self, seed: int, *place: str) -> None:
        self.seed, self.place = seed, place
        self._streams: dict[str, np.random.Generator] = {}

    def below(self, name: str) -> Dice:
        """Return dice with *name* added to the prefix."""
        return Dice(self.seed, *self.place, name)

    def chance(self, name: str, probability: float) -> bool:
        return bool(self._of(name).random() < probability)

    def pick(self, name: str, options: Sequence[T], weights: Sequence[float] | None = None) -> T:
        """Return a random one of *options*. If *weights* is None, all are equally likely."""
        shares = None if weights is None else np.asarray(weights, dtype=float) / sum(weights)
        return options[int(self._of(name).choice(len(options), p=shares))]

    def sample(self, name: str, options: Sequence[T], count: int) -> list[T]:
        """Return *count* different elements of *options*."""
        places = self._of(name).choice(len(options), size=count, replace=False)
        return [options[int(place)] for place in places]

    def whole(self, name: str, least: int, most: int) -> int:
        """Return an integer from *least* to *most*, both included."""
        return int(self._of(name).integers(least, most + 1))

    def uniform(self, name: str, least: float, most: float) -> float:
        """Return a number from *least* to *most*, rounded to three digits so that it is easy to
        read.
        """
        return float(f"{self._of(name).uniform(least, most):.3g}")

    def spread(self, name: str, least: float, most: float) -> float:
        """Return a number from *least* to *most* with three digits, uniform on a
        logarithmic scale.
        """
        return float(f"{math.exp(self._of(name).uniform(math.log(least), math.log(most))):.3g}")

    def some(self, name: str, options: dict[str, Any], omitted: float) -> set[str]:
        """Return a random subset of *options*. Each is omitted with probability *omitted*."""
        return {option for option in options if not self.chance(f"{name} {option}", omitted)}

    def _of(self, name: str) -> np.random.Generator:
        if name not in self._streams:
            self._streams[name] = numpy_stream(self.seed, "swarm", *self.place, name)
        return self._streams[name]
