"""What a rank holds, by kind, in bytes: now, and at most.

Counted where the algorithm takes and gives back, not by the clock: a gradient that is being summed is held until the
algorithm waits for the sum. So the peak is the same however fast the network is.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["parameters", "optimizer", "gradients", "gathered"]


class Held:
    """Starts with nothing."""

    def __init__(self) -> None:
        self.now: dict[Kind, int] = {"parameters": 0, "optimizer": 0, "gradients": 0, "gathered": 0}
        self.most = dict(self.now)
        self.peak_bytes = 0

    def take(self, kind: Kind, size_bytes: int) -> None:
        self.now[kind] += size_bytes
        self.most[kind] = max(self.most[kind], self.now[kind])
        self.peak_bytes = max(self.peak_bytes, sum(self.now.values()))

    def give(self, kind: Kind, size_bytes: int) -> None:
        """Raises ValueError if so much is not held: it would have been counted wrong."""
        if size_bytes > self.now[kind]:
            raise ValueError(f"{size_bytes} bytes of {kind} given back, of {self.now[kind]} held")
        self.now[kind] -= size_bytes

    def metrics(self) -> dict[str, float]:
        """The most of each kind, and of all together at any time."""
        most = {f"{kind}_bytes": float(size_bytes) for kind, size_bytes in self.most.items()}
        return most | {"peak_bytes": float(self.peak_bytes)}
