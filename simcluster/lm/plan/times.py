"""The closed forms: seconds of a layer, a hop and an all-reduce, and of a token through stages or shards."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.request import MOST_TOKENS
from simcluster.topology import Device, Topology
from simcluster.topology.model.duration import expected_s

TOKEN_BYTES: Final = 4
"""The bytes of a token's number on its way back to the first stage."""


@dataclass(frozen=True)
class Lengths:
    """The tokens of a request. A decoded token is timed in the middle of the answer."""

    prompt: int = 512
    output: int = 128

    @property
    def context(self) -> int:
        return self.prompt + self.output // 2

    @property
    def most(self) -> int:
        return self.prompt + self.output


def lengths_in(shape: ModelShape, prompt: int | None, output: int | None) -> Lengths:
    """Return *prompt* and *output* tokens, by default those of Lengths, or what the context of *shape* leaves."""
    usual, most = Lengths(), shape.context or MOST_TOKENS
    answer = min(usual.output, max(1, most // 4)) if output is None else output
    return Lengths(min(usual.prompt, max(1, most - answer)) if prompt is None else prompt, answer)


@dataclass(frozen=True)
class NodePace:
    """The seconds of one node: *start_s* once, *layer_s* for each layer, *head_s* for the logits, which are a piece of
    work of their own.
    """

    start_s: float
    layer_s: float
    head_s: float

    def stage_s(self, layers: int, last: bool) -> float:
        return self.start_s + layers * self.layer_s + self.head_s * last


def pace(device: Device, shape: ModelShape, requests: int, tokens: int, context: int, share: float = 1.0) -> NodePace:
    """Return the pace of *device* with *share* of every matrix, for *tokens* new tokens of each request.

    A layer takes the slower of FLOPs / F and bytes / B, plus the overhead of its operators.
    """
    bare = replace(device, work_overhead_s=0.0)
    slower = device.straggler.mean_factor if device.straggler is not None else 1.0
    layer_s = expected_s(bare, shape.layer_cost(requests, tokens, context, share))
    return NodePace(slower * device.work_overhead_s, layer_s, expected_s(device, shape.head_cost(requests, share)))


def hop_s(topology: Topology, a: str, b: str, size: float) -> float:
    """Return the seconds of a message of *size* bytes: the hosts' overheads, the latency, size / bandwidth."""
    if a == b:
        return 0.0
    here, there = topology.nodes[a], topology.nodes[b]
    latency_s = here.send_overhead_s + topology.route_latency_s(a, b) + there.recv_overhead_s
    return latency_s + size * max(_byte_s(topology, [(a, b)]).values())


def _byte_s(topology: Topology, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """Return the seconds for which a byte between each of *pairs* at once occupies each link, medium and host.

    A link that lets every flow have all of its bandwidth is occupied by one of them alone.
    """
    busy: dict[tuple[str, str], float] = {}
    for a, b in pairs:
        for hop in topology.route(a, b):
            link = hop.link
            way = (hop.source, hop.target) if link.duplex != "half" else (link.a, link.b)
            channel = way if link.medium is None else (" ", link.medium)
            before = 0.0 if link.duplex == "free" else busy.get(channel, 0.0)
            busy[channel] = before + 1 / link.bandwidth_Bps
        for name in (a, b):
            busy["", name] = busy.get(("", name), 0.0) + 1 / topology.nodes[name].host_bandwidth_Bps
    return busy


def bytes_s(topology: Topology, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Return the seconds of a byte between each of *pairs*, all at once: those at the busiest place on its way."""
    busy = _byte_s(topology, pairs)
    return [max(busy[place] for place in _byte_s(topology, [pair])) for pair in pairs]


@dataclass(frozen=True)
class AllReduceTime:
    """The time of an all-reduce: *latency_s*, plus *wire_s* for each byte of the vector."""

    latency_s: float
    wire_s: float

    def seconds(self, size: float) -> float:
        return self.latency_s + size * self.wire_s


def all_reduce(topology: Topology, names: Sequence[str]) -> AllReduceTime:
    """Return the times of the direct schedule: an n-th to every other rank, and the sums back, so two exchanges.

    Every link, and every host with a bandwidth of its own, carries the n-ths of all pairs that use it; the busiest one
    decides. Latencies are those of the most distant pair, and a host's overheads count for each of its messages.
    """
    n = len(names)
    nodes = [topology.nodes[name] for name in names]
    byte_s = max(_byte_s(topology, itertools.permutations(names, 2)).values(), default=0.0)
    overhead_s = (n - 1) * max(node.send_overhead_s + node.recv_overhead_s for node in nodes)
    farthest_s = max((topology.route_latency_s(a, b) for a, b in itertools.combinations(names, 2)), default=0.0)
    return AllReduceTime(2 * (overhead_s + farthest_s), 2 * byte_s / n)


def exchanged_bytes(shape: ModelShape, n: int) -> float:
    """Return the bytes that all ranks together send for a token under tensor parallelism: two all-reduces a layer."""
    return 2 * (n - 1) * 2 * shape.layers * shape.hidden_bytes(1)


def told_s(topology: Topology, names: Sequence[str], size: float) -> float:
    """Return the seconds of a message of *size* bytes from the first of *names* to each of the others, all at once."""
    return _all_at_once_s(topology, [(names[0], other) for other in names[1:]], size)


def gathered_s(topology: Topology, names: Sequence[str], size: float) -> float:
    """Return the seconds of a message of *size* bytes from each of the others to the first of *names*, all at once."""
    return _all_at_once_s(topology, [(other, names[0]) for other in names[1:]], size)


def _all_at_once_s(topology: Topology, pairs: Sequence[tuple[str, str]], size: float) -> float:
    farthest_s = max((hop_s(topology, a, b, 0) for a, b in pairs), default=0.0)
    return farthest_s + size * max(_byte_s(topology, pairs).values(), default=0.0)


def tensor_s(shape: ModelShape, paces: Sequence[NodePace], reduce: AllReduceTime, ends_s: float, tokens: int) -> float:
    """Return the seconds of *tokens* new tokens over shards: the slowest rank's layers and logits, and *ends_s* for the
    tokens' way to the other ranks and the logits' way back. A layer is two pieces of work, each with an all-reduce.
    """
    layers_s = max(shape.layers * (2 * one.start_s + one.layer_s) for one in paces)
    heads_s = max(one.head_s for one in paces)
    return layers_s + heads_s + ends_s + 2 * shape.layers * reduce.seconds(shape.hidden_bytes(tokens))


def pipeline_s(stages_s: Sequence[float], hops_s: Sequence[float], back_s: float) -> float:
    """Return the seconds of a token of one request: every stage, every hop, and its number's way back."""
    return sum(stages_s) + sum(hops_s) + back_s


def cycle_s(stages_s: Sequence[float], hops_s: Sequence[float], back_s: float, groups: int) -> float:
    """Return the seconds in which each of *groups* of requests in flight gets a token.

    With enough groups the slowest stage or hop is always busy; with few, a group's own way through is longer.
    """
    return max(groups * max(*stages_s, *hops_s), pipeline_s(stages_s, hops_s, back_s))
