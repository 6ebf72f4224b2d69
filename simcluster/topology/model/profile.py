"""A measured profile: the time of each kind of work on a device, by its amount of arithmetic."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from simcluster.units import write_amount, write_latency

Points: TypeAlias = tuple[tuple[float, float], ...]
"""(FLOPs, seconds), FLOPs ascending; a single point at 0 FLOPs is a time for work of any size."""


@dataclass(frozen=True)
class Profile:
    """*kinds* maps a kind of work (`Cost.kind`) to its points, as hashable pairs."""

    kinds: tuple[tuple[str, Points], ...]

    def seconds(self, kind: str, flops: float) -> float | None:
        """Return the measured time of *flops* of work of this *kind*; None if it was not measured.

        Interpolate linearly between points. Beyond them, extend the line through the two nearest, if it rises, starting
        at 0 s or above. Scale a single point in proportion.
        """
        for name, points in self.kinds:
            if name == kind:
                return _read_off(points, flops)
        return None

    def __str__(self) -> str:
        return f"measured for {', '.join(kind for kind, _ in self.kinds)}"


def profile_block(measured: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    """Return *measured* (kind -> FLOPs -> seconds) as a node's `profile` in a topology file; only 0 FLOPs: any size."""
    return {
        kind: write_latency(points[0])
        if set(points) == {0}
        else {write_amount(flops): write_latency(points[flops]) for flops in sorted(points)}
        for kind, points in measured.items()
    }


def _read_off(points: Sequence[tuple[float, float]], flops: float) -> float:
    first_flops, first_s = points[0]
    if len(points) == 1:
        return first_s * flops / first_flops if first_flops else first_s
    index = bisect_left(points, flops, key=lambda point: point[0])
    if index == 0:
        rise = _slope(points[0], points[1])
        at_zero_s = max(0.0, first_s - rise * first_flops)
        return _between(at_zero_s, first_s, flops / first_flops)
    if index == len(points):
        last_flops, last_s = points[-1]
        return last_s + _slope(points[-2], points[-1]) * (flops - last_flops)
    (below_flops, below_s), (above_flops, above_s) = points[index - 1], points[index]
    return _between(below_s, above_s, (flops - below_flops) / (above_flops - below_flops))


def _between(below_s: float, above_s: float, share: float) -> float:
    """Interpolate, exact at both ends."""
    return below_s * (1 - share) + above_s * share


def _slope(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return the seconds per FLOP from *a* to *b*; 0 if noise makes the larger work look faster."""
    return max(0.0, (b[1] - a[1]) / (b[0] - a[0]))
