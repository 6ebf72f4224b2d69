"""A layout of ranks in up to four directions, and the place of a rank in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal

from pydantic import PositiveInt

from simcluster.errors import UsageError

Direction = Literal["pipeline", "data", "expert", "tensor"]

ParallelLayout = dict[Direction, PositiveInt]
"""The numbers of ranks in each direction; their product is the number of all ranks.

*pipeline* ranks hold consecutive layers, and *tensor* ranks shares of each layer (Narayanan et al. 2021, section 2).
The *expert* ranks of a group divide the experts; *data* groups hold the same experts.
"""

ORDER: Final[tuple[Direction, ...]] = ("pipeline", "data", "expert", "tensor")
"""The directions from the outermost to the innermost: ranks of one tensor group follow one another."""


@dataclass(frozen=True)
class LayoutPlace:
    """The place of *rank* in a layout of *counts* ranks in each direction."""

    rank: int
    counts: Mapping[Direction, int]

    def at(self, direction: Direction) -> int:
        """Return the place of this rank in *direction*, from 0."""
        return self.rank // self._stride(direction) % self.counts[direction]

    def along(self, *directions: Direction) -> list[int]:
        """Return the ranks that differ from this one in *directions* alone, ascending; this one is among them."""
        strides = [(self._stride(one), self.counts[one]) for one in ORDER if one in directions]
        first = self.rank - sum(self.at(one) * self._stride(one) for one in directions)
        steps = product(*(range(0, stride * count, stride) for stride, count in strides))
        return [first + sum(step) for step in steps]

    def _stride(self, direction: Direction) -> int:
        return math.prod(self.counts[inner] for inner in ORDER[ORDER.index(direction) + 1 :])


def counts_of(layout: ParallelLayout | None, size: int, experts: int) -> dict[Direction, int]:
    """Return the ranks in each direction of *layout* for *size* ranks; by default, as many ranks as can
    divide the *experts*, and the others are data groups.

    Raise UsageError if they do not fit.
    """
    best = math.gcd(size, experts)
    counts: dict[Direction, int] = dict.fromkeys(ORDER, 1)
    counts |= {"data": size // best, "expert": best} if layout is None else layout
    inner = counts["pipeline"] * counts["tensor"]
    others = {one: counts[one] for one in ("pipeline", "tensor") if counts[one] > 1 and size % inner == 0}
    rest = size // math.prod(others.values())
    fits = ", or ".join(
        str({"data": rest // n, **others, "expert": n}).replace("'", "")
        for n in range(1, rest + 1) if math.gcd(rest, experts) % n == 0
    )  # fmt: skip
    if math.prod(counts.values()) != size:
        factors = " x ".join(f"{one} {n}" for one, n in counts.items() if n > 1 or one in ("data", "expert"))
        found = f"{factors} = {math.prod(counts.values())} ranks"
        raise UsageError("layout", found, f"the {size} ranks of the topology: {fits}")
    if experts % counts["expert"]:
        raise UsageError("layout", f"{counts['expert']} ranks for {experts} experts", f"a divisor of {experts}: {fits}")
    return counts
