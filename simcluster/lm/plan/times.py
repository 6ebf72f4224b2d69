"""Closed forms for the times of a layer, a hop, an all-reduce and a token."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.request import MOST_TOKENS
from simcluster.topology import Device, Topology
from simcluster.topology.model.busy_links import busy_byte_s
from simcluster.topology.model.duration import expected_s

TOKEN_BYTES: Final = 4
"""Size of a token id, which the last stage returns to the first."""


@dataclass(frozen=True)
class Lengths:
    """The lengths of a request, in tokens."""

    prompt: int = 512
    output: int = 128

    @property
    def context(self) -> int:
        """The context at which a decoded token is timed: the prompt and half of the answer."""
        return self.prompt + self.output // 2

    @property
    def most(self) -> int:
        """The longest context: the whole prompt and the whole answer."""
        return self.prompt + self.output


def lengths_in(shape: ModelShape, prompt: int | None, output: int | None) -> Lengths:
    """Return the lengths *prompt* and *output*.

    If one is None, use its default, or less if *shape*'s context is too short for that.
    """
    usual = Lengths()
    most = shape.context or MOST_TOKENS
    answer = min(usual.output, max(1, most // 4)) if output is None else output
    return Lengths(min(usual.prompt, max(1, most - answer)) if prompt is None else prompt, answer)


@dataclass(frozen=True)
class NodePace:
    """The times of one node: *start_s* per stage, *layer_s* per layer, *head_s* for the logits.

    The logits are a separate piece of work after the last layer.
    """

    start_s: float
    layer_s: float
    head_s: float

    def stage_s(self, layers: int, last: bool) -> float:
        return self.start_s + layers * self.layer_s + self.head_s * last


def pace(device: Device, shape: ModelShape, requests: int, tokens: int, context: int, share: float = 1.0) -> NodePace:
    """Return the pace of *device* with *share* of every matrix, for *tokens* per request.

    A layer takes FLOPs / F or bytes / B, whichever is longer, plus the overhead of its operators.
    """
    bare = replace(device, work_overhead_s=0.0)
    slower = device.straggler.mean_factor if device.straggler is not None else 1.0
    layer_s = expected_s(bare, shape.layer_cost(requests, tokens, context, share))
    return NodePace(slower * device.work_overhead_s, layer_s, expected_s(device, shape.head_cost(requests, share)))


def hop_s(topology: Topology, a: str, b: str, size: float) -> float:
    """Return the seconds that a message of *size* bytes takes from *a* to *b*.

    They are the sum of the hosts' overheads, the latency of the route, and size / bandwidth.
    """
    if a == b:
        return 0.0
    return fixed_s(topology, a, b, size) + size * max(busy_byte_s(topology, [(a, b)], size).values())


def fixed_s(topology: Topology, a: str, b: str, size: float) -> float:
    """Return the seconds of a message of *size* bytes without those for its bytes."""
    here, there = topology.nodes[a], topology.nodes[b]
    return here.send_overhead_s + topology.route_latency_s(a, b, size) + there.recv_overhead_s


def all_reduce_s(topology: Topology, names: Sequence[str], size: float) -> float:
    """Return the seconds of an all-reduce of *size* bytes in the direct schedule: two exchanges.

    Each of n ranks sends 1/n of its vector to every other rank; then the sums are sent back. Each
    link (and each host with a limited bandwidth) carries the parts of all pairs that use it, and
    the busiest one determines the time. The latency is that of the most distant pair. A host has
    its overheads for each of its messages.
    """
    n = len(names)
    nodes = [topology.nodes[name] for name in names]
    byte_s = max(busy_byte_s(topology, itertools.permutations(names, 2), size / n).values(), default=0.0)
    overhead_s = (n - 1) * max(node.send_overhead_s + node.recv_overhead_s for node in nodes)
    pairs = itertools.combinations(names, 2)
    farthest_s = max((topology.route_latency_s(a, b, size / n) for a, b in pairs), default=0.0)
    return 2 * (overhead_s + farthest_s) + size * (2 * byte_s / n)


def exchanged_bytes(shape: ModelShape, n: int) -> float:
    """Return the bytes that all *n* ranks together send per token in tensor parallelism."""
    return 2 * (n - 1) * 2 * shape.layers * shape.hidden_bytes(1)


def told_s(topology: Topology, names: Sequence[str], size: float) -> float:
    """Return the time that the first of *names* takes to send *size* bytes to each of the others.

    All messages are sent at once.
    """
    return _all_at_once_s(topology, [(names[0], other) for other in names[1:]], size)


def gathered_s(topology: Topology, names: Sequence[str], size: float) -> float:
    """Return the time for the first of *names* to receive *size* bytes from each of the others.

    All messages are sent at once.
    """
    return _all_at_once_s(topology, [(other, names[0]) for other in names[1:]], size)


def _all_at_once_s(topology: Topology, pairs: Sequence[tuple[str, str]], size: float) -> float:
    farthest_s = max((fixed_s(topology, a, b, size) for a, b in pairs), default=0.0)
    return farthest_s + size * max(busy_byte_s(topology, pairs, size).values(), default=0.0)


def tensor_s(shape: ModelShape, paces: Sequence[NodePace], reduce_s: float, ends_s: float) -> float:
    """Return the seconds that new tokens take with tensor parallelism.

    They are the sum of the slowest rank's layers and logits, the all-reduces of *reduce_s* each, and
    *ends_s*, the time to send tokens to the other ranks and logits back. A layer is two pieces of
    work, each of them with an all-reduce.
    """
    layers_s = max(shape.layers * (2 * one.start_s + one.layer_s) for one in paces)
    heads_s = max(one.head_s for one in paces)
    return layers_s + heads_s + ends_s + 2 * shape.layers * reduce_s


def pipeline_s(stages_s: Sequence[float], hops_s: Sequence[float], back_s: float) -> float:
    """Return the seconds per token of one request: every stage, every hop, and the hop back."""
    return sum(stages_s) + sum(hops_s) + back_s


def cycle_s(stages_s: Sequence[float], hops_s: Sequence[float], back_s: float, groups: int) -> float:
    """Return the interval between the tokens of a request, with *groups* of requests in flight.

    With enough groups, the slowest stage or hop is always busy and determines the interval. With
    few groups, the time of one group through all stages is longer.
    """
    return max(groups * max(*stages_s, *hops_s), pipeline_s(stages_s, hops_s, back_s))
