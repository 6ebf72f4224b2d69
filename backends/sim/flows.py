"""Plain flows over a topology, without nodes that compute: when is each there?

This file knows the network and its clock. It must not know algorithms, transports or files.

A flow pays its latency first and then its bytes compete: the usual convention for fluid flows, and the one in which
independent simulators state their results. (A transport injects first, so that `send` can return when it has.)
"""

from __future__ import annotations

from collections.abc import Sequence

from backends.sim.clock import Clock
from backends.sim.models import MODELS, Channels
from backends.sim.network import Network
from simcluster.experiment.flows import PlainFlow
from simcluster.topology import Topology


def finish_times(topology: Topology, flows: Sequence[PlainFlow], model: str = "maxmin") -> list[float]:
    """When each of *flows* is there, in seconds. Raises KeyError for a *model* that is none of MODELS."""
    network_model = MODELS[model]
    clock, channels = Clock(), Channels(network_model)
    network = Network(clock)
    finish_s = [0.0] * len(flows)

    def launch(number: int, flow: PlainFlow) -> None:
        route, latency_s = network_model.lay(topology.route(flow.source, flow.target), channels)

        def done() -> None:
            finish_s[number] = clock.now

        def begin(_: object) -> None:
            if flow.size_bytes:
                network.start(route, flow.size_bytes, done)
            else:
                done()

        clock.alarm_at(flow.start_s + latency_s, begin)

    for number, flow in enumerate(flows):
        launch(number, flow)
    while clock.advance():
        pass
    return finish_s
