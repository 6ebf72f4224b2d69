"""The bytes that a rank holds, by kind: now and at peak.

They are counted where the algorithm acquires and releases memory, not by the clock: a gradient being summed is held
until the algorithm waits for the sum. So the peak does not depend on the network's speed.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["parameters", "optimizer", "gradients", "gathered"]


class Held:
    """The bytes held now, the most per kind, and the peak of the total; all start at zero."""

    def __init__(self) -> None:
        self.now: dict[Kind, int] = {"parameters": 0, "optimizer": 0, "gradients": 0, "gathered": 0}
        self.most = dict(self.now)
        self.peak_bytes = 0

    def take(self, kind: Kind, size_bytes: int) -> None:
        self.now[kind] += size_bytes
        self.most[kind] = max(self.most[kind], self.now[kind])
        self.peak_bytes = max(self.peak_bytes, sum(self.now.values()))

    def give(self, kind: Kind, size_bytes: int) -> None:
        """Raise ValueError if fewer bytes are held, which means a counting error."""
        if size_bytes > self.now[kind]:
            raise ValueError(f"{size_bytes} bytes of {kind} given back, of {self.now[kind]} held")
        self.now[kind] -= size_bytes

    def metrics(self) -> dict[str, float]:
        """Return the peak of each kind, and of the total."""
        most = {f"{kind}_bytes": float(size_bytes) for kind, size_bytes in self.most.items()}
        return most | {"peak_bytes": float(self.peak_bytes)}
