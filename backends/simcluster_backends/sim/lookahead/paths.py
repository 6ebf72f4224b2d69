"""The paths of all ranks' messages in one round."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simcluster.rounds import NO_RANK

if TYPE_CHECKING:
    from simcluster_backends.sim.network.channels import Channel
    from simcluster_backends.sim.network.routes import ChannelRoutes
    from simcluster_backends.sim.network.spokes import Spokes
    from simcluster_backends.sim.streams import Streams

Floats: TypeAlias = NDArray[np.float64]
"""A number per rank, most often the time in seconds at which the rank begins a round."""

Ints: TypeAlias = NDArray[np.int64]

NO_CHANNEL = 0
"""The channel number that pads the rows of shorter paths."""


class Wires(NamedTuple):
    """The path of each rank's message; row r of *channels* has the channel numbers of r's path.

    The path of a rank that sends nothing has no channels and takes no time.
    """

    rates_Bps: Floats
    latencies_s: Floats
    channels: Ints


def outside(to: Ints, ranks: Ints, size: int) -> Ints:
    """Return the receiver of each of *size* ranks, NO_RANK for those that send nothing.

    *to* has the receivers of *ranks*, as indices into *ranks*."""
    everywhere = np.full(size, NO_RANK)
    everywhere[ranks] = np.where(to == NO_RANK, NO_RANK, ranks[to])
    return everywhere


class Paths:
    """The paths that messages between *ranks* take at this instant if they share no channel.

    *size* is the number of ranks in the cluster. Arrays have an entry per rank of *ranks*.
    """

    def __init__(self, size: int, streams: Streams, routes: ChannelRoutes, ranks: Ints) -> None:
        self._size = size
        self._streams = streams
        self._ranks = ranks
        self._numbers: dict[int, int] = {}  # id of channel -> its number; no order depends on ids
        self._spokes: Spokes | None = routes.spokes if streams.limit_B and not streams.gated else None
        channels = (*self._spokes.up, *self._spokes.down) if self._spokes is not None else ()
        self._is_free = not any(channel.demands for channel in channels)

    def wires(self, to: Ints) -> Wires | None:
        """Return the path from each rank r to rank *to[r]*, unless *to[r]* is NO_RANK.

        Return None if two paths share a channel, if a channel carries other traffic, if more than
        bandwidth and latency affects a message, or if a path does not bound the rate of a message.
        """
        if not self._is_free:
            return None
        everywhere = outside(to, self._ranks, self._size)
        found = (
            self._along_streams(everywhere) if self._spokes is None else self._along_spokes(self._spokes, everywhere)
        )
        if found is None:
            return None
        return Wires(found.rates_Bps[self._ranks], found.latencies_s[self._ranks], found.channels[self._ranks])

    def _along_spokes(self, spokes: Spokes, to: Ints) -> Wires | None:
        ranks = np.arange(len(to))
        idle = to == NO_RANK
        rates_Bps, latencies_s = spokes.wires(to)
        if np.isinf(rates_Bps[~idle]).any():
            return None
        rates_Bps[idle], latencies_s[idle] = inf, 0.0
        channels = np.stack((1 + ranks, 1 + len(to) + to), axis=1)
        channels[idle] = NO_CHANNEL
        return Wires(rates_Bps, latencies_s, channels)

    def _along_streams(self, to: Ints) -> Wires | None:
        rates_Bps, latencies_s = np.full(len(to), inf), np.zeros(len(to))
        rows: list[list[int]] = [[] for _ in to]
        crossed: set[int] = set()
        for rank, peer in enumerate(to.tolist()):
            if peer == NO_RANK:
                continue
            stream = self._streams.of(rank, peer)
            if not stream.is_plain:
                return None
            route = stream.way.route
            rate_Bps = route.bound_Bps  # for a message alone on its route, as in FairShare.join
            for channel, use in route.uses:
                number = self._number(channel)
                if number in crossed or channel.demands:
                    return None
                crossed.add(number)
                rows[rank].append(number)
                if channel.capacity_Bps < rate_Bps * use:
                    rate_Bps = channel.capacity_Bps / use
            if rate_Bps == inf:
                return None
            rates_Bps[rank], latencies_s[rank] = rate_Bps, stream.way.latency_s
        longest = max(1, *map(len, rows))  # where flows share no link, routes have no channels
        channels = np.array([row + [NO_CHANNEL] * (longest - len(row)) for row in rows], dtype=np.int64)
        return Wires(rates_Bps, latencies_s, channels)

    def _number(self, channel: Channel) -> int:
        return self._numbers.setdefault(id(channel), len(self._numbers) + 1)
