"""Finish times of plain flows over a topology, without nodes that compute.

A flow first waits for its latency, and then its bytes compete for bandwidth. This is the usual
convention for fluid flows, so results can be compared with other simulators. (A transport injects
first, so that `send` can return after the injection.) A plain flow does not pay a node's overhead
per message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import ceil, inf
from operator import setitem

from simcluster.errors import UsageError
from simcluster.spelling import nearest
from simcluster.topology import Topology
from simcluster.topology.plain_flows import PlainFlow
from simcluster_backends.sim.loop.clock import Clock, Endless, collected_rarely
from simcluster_backends.sim.network.flows import Flow, Network
from simcluster_backends.sim.network.losses import StallingFlow
from simcluster_backends.sim.network.models import MODELS
from simcluster_backends.sim.network.routes import ChannelRoutes


def finish_times(
    topology: Topology, flows: Sequence[PlainFlow], model: str | None = None, seed: int = 0
) -> list[float]:
    """Return the finish time of each of *flows*, in seconds; inf if it never finishes.

    *model* defaults to the topology's. Raise UsageError if it is not in MODELS.
    """
    if model is not None and model not in MODELS:
        raise UsageError("model", repr(model), nearest(model, MODELS))
    clock = Clock()
    network = Network(clock)
    routes = ChannelRoutes(topology, seed, clock, network, MODELS[model or topology.network])
    finish_s = [inf] * len(flows)
    for number, flow in enumerate(flows):
        _launch(routes, clock, network, flow, partial(setitem, finish_s, number))
    with collected_rarely(), suppress(Endless):  # links may change forever without any flow ending
        while clock.advance():
            pass
    return finish_s


def _launch(
    routes: ChannelRoutes, clock: Clock, network: Network, flow: PlainFlow, finished: Callable[[float], object]
) -> None:
    _, way = routes.way(flow.source, flow.target).of(flow.size_bytes)

    def done() -> None:
        if way.conditions is not None:
            way.conditions.leave()
        finished(clock.now)

    def begin(_: object) -> None:
        if way.conditions is not None:
            way.conditions.enter()
        stalls = way.losses.stalls(ceil(flow.size_bytes)) if way.losses is not None else []
        if stalls:
            network.put(StallingFlow(*way.route, left_B=flow.size_bytes, on_done=done, network=network, stalls=stalls))
        elif flow.size_bytes:
            network.put(Flow(*way.route, left_B=flow.size_bytes, on_done=done))
        else:
            done()

    clock.alarm_at(flow.start_s + way.latency_at(flow.start_s) + sum(draw_s() for draw_s in way.jitters), begin)
