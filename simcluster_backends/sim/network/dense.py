"""Progressive filling with vectors, for many channels that have demands in common with most others.

Thousands of random flows between the hosts of a star are such a case: a step of the filling touches most channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from simcluster_backends.sim.network.channels import Channel, Demand, Part

Floats: TypeAlias = NDArray[np.float64]

SAME = 1.0 + 1e-12
"""Levels that differ by less are one level: rounding must not spread ends that belong to one moment."""

LEAST_PAIRS, MOST_CHANNELS = 4000, 512
"""Fewer pairs are filled faster without vectors; matrices of more channels take too much memory."""

LEAST_KNOWN = 400
"""Fewer pairs are filled faster than they are solved with the holders until now."""


def pays(pairs: int) -> bool:
    """Return whether *pairs* of channels are filled faster with vectors."""
    return pairs >= LEAST_PAIRS


class Loads:
    """For each pair of known channels, what the first one holds on the second: *loads*, and *numbers* of demands.

    Whatever holds demands on a known channel is known as well.
    """

    def __init__(self) -> None:
        self.known: list[Channel] = []
        self.loads: Floats = np.zeros((64, 64))
        self.numbers: Floats = np.zeros((64, 64))

    def knows(self, channels: Sequence[Channel], pairs: int) -> bool:
        """Get to know *channels* with *pairs* of them, if that pays; return whether they are known."""
        if pairs < LEAST_KNOWN:
            return False
        for channel in channels:
            if channel.index < 0:
                self._add(channel)
        return len(self.known) <= MOST_CHANNELS

    def note(self, holder: Channel, channel: Channel, part: Part) -> None:
        """Note the present *part* of the known *channel* that *holder* holds."""
        if holder.index < 0:
            self._add(holder)
        if len(self.known) <= MOST_CHANNELS:
            self.loads[holder.index, channel.index] = part.load
            self.numbers[holder.index, channel.index] = len(part.loads)

    def _add(self, channel: Channel) -> None:
        channel.index, channel.among = len(self.known), self
        self.known.append(channel)
        size = len(self.loads)
        if size < len(self.known) <= MOST_CHANNELS:
            self.loads, self.numbers = (np.pad(matrix, (0, size)) for matrix in (self.loads, self.numbers))
        for holder, part in channel.parts.items():
            if not holder.is_loose:
                self.note(holder, channel, part)
        for other, part in channel.reach.items():
            if other.index >= 0:
                self.note(channel, other, part)


class Rising:
    """The state of a filling: for each known channel the capacity that is left, and the load that still rises."""

    def __init__(self, among: Loads, channels: Sequence[Channel], loose: Channel) -> None:
        known = among.known
        size = len(known)
        self._loads, self._numbers = among.loads[:size, :size], among.numbers[:size, :size]
        rises, levels, left_Bps = np.zeros(size), np.zeros(size), np.zeros(size)
        held = [(at, channel.level) for at, channel in enumerate(known) if channel.reach and not channel.is_open]
        levels[[at for at, _ in held]] = [level for _, level in held]
        indices = [channel.index for channel in channels]
        rises[indices] = [channel.is_open for channel in channels]
        left_Bps[indices] = [channel.capacity_Bps - channel.limited.load for channel in channels]
        self._left_Bps: Floats = left_Bps - levels @ self._loads
        self._load: Floats = rises @ self._loads
        self._waiting: Floats = rises @ self._numbers
        for channel, part in loose.reach.items():
            self._load[channel.index] += part.load
            self._waiting[channel.index] += len(part.loads)
        self._share: Floats = np.empty(size)
        self._rises, self._known, self._loose = rises, known, loose

    def first(self) -> tuple[float, int]:
        """Return the level at which the next channel is full, and its index; inf if no demand waits."""
        share = self._share
        share.fill(np.inf)
        np.divide(self._left_Bps, self._load, out=share, where=self._waiting > 0)
        index = int(share.argmin())
        return float(share[index]), index

    def holders(self, index: int) -> list[Channel]:
        """Return what holds demands on the channel of *index* and is not full yet."""
        found = [self._known[at] for at in np.flatnonzero(self._rises * self._numbers[:, index]).tolist()]
        return [self._loose, *found] if self._loose in self._known[index].parts else found

    def take(self, demand: Demand) -> None:
        """Subtract *demand*, which its limit holds."""
        for channel, use in demand.uses:
            if len(channel.demands) > 1:
                self._left_Bps[channel.index] -= demand.limit_Bps * use
                self._load[channel.index] -= demand.weight * use
                self._waiting[channel.index] -= 1

    def fill(self, index: int, level: float) -> None:
        """Subtract the demands that the channel of *index* holds at *level*."""
        loads = self._loads[index]
        self._rises[index] = 0.0
        self._left_Bps -= level * loads
        self._load -= loads
        self._waiting -= self._numbers[index]
