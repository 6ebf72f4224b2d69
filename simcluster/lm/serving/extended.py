"""The times of a long answer from five short simulations of it.

If nothing but the length of the cache changes from one token to the next, the time of a token is a
maximum of linear functions of that length, so it is convex. If the times of the second token, the
third and the last are on one line, those of all tokens are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from msgspec.structs import replace as replaced

from simcluster.fault_plans.plan import planned
from simcluster.lm.serving.run import NodeUse, ServingResult, TimedAnswer, answer_all
from simcluster.lm.serving.setup import Setup
from simcluster.topology import Topology

TOLERANCE = 1e-9
"""The largest relative error of a step's time that still counts as on the line."""


@dataclass(frozen=True)
class GrowthLine:
    """A quantity after each of *count* tokens: *first* after the first token, then steps on a line.

    *second* is the step of the second token and *last* that of the last token.
    """

    first: float
    second: float
    last: float
    count: int

    def after(self, tokens: int) -> float:
        return self.first + (tokens - 1) * (self.second + self.step(tokens)) / 2

    def step(self, token: int) -> float:
        return self.second + (self.last - self.second) * (token - 2) / (self.count - 2)


def answer_timed(setup: Setup, topology: Topology, seed: int = 0) -> ServingResult:
    """Return the simulated times of the one request of *setup*, which computes no numbers.

    If the times of tokens are on a line, simulate a few, and extend them. Then times and busy times
    are those of the whole simulation within 1e-9. Sent bytes differ by a few per token, since the
    number of digits in a node's report of its load varies. The record is that of three tokens.
    """
    (request,) = setup.requests
    if _is_still(topology) and _saves_batches(setup):
        prompt, count = len(request.prompt), request.max_tokens
        near = [_shortened(setup, topology, seed, prompt, tokens) for tokens in (1, 2, 3)]
        far = [_shortened(setup, topology, seed, prompt + count - 2, tokens) for tokens in (1, 2)]
        if (found := _extended(near, far, count)) is not None:
            return found
    return answer_all(setup, topology, seed=seed)


def _is_still(topology: Topology) -> bool:
    """Return whether nothing on *topology* changes by chance or with time."""
    links_are_still = not any(
        link.loss or link.jitter or link.trace or link.latency_trace or link.background for link in topology.links
    )
    devices_are_still = all(topology.device(name).straggler is None for name in topology.workers)
    return links_are_still and devices_are_still and not topology.background and not planned()


def _saves_batches(setup: Setup) -> bool:
    """Return whether the short simulations have fewer batches than the whole one.

    Guessed tokens share batches, so with guesses a batch is not a token.
    """
    (request,) = setup.requests
    prompt, count, limits = len(request.prompt), request.max_tokens, setup.limits
    near, far = (ceil(tokens / limits.chunk_tokens) for tokens in (prompt, prompt + count - 2))
    return not limits.guesses and 3 * near + 2 * far + 4 < near + count - 1


def _shortened(setup: Setup, topology: Topology, seed: int, prompt: int, tokens: int) -> ServingResult:
    (request,) = setup.requests
    request = replace(request, prompt=request.prompt[:1] * prompt, max_tokens=tokens)
    return answer_all(replaced(setup, requests=(request,)), topology, seed=seed)


def _extended(near: list[ServingResult], far: list[ServingResult], count: int) -> ServingResult | None:
    """Return the result of *count* tokens, or None if the times of tokens are not on a line.

    *near* are the results of one, two and three tokens. *far* are those of one and two tokens after
    a prompt that makes the second token the last of the answer.
    """
    values = [_values(one) for one in (*near, *far)]
    lines = {}
    for key in values[0]:
        one, two, three, before, end = (found[key] for found in values)
        line = GrowthLine(one, two - one, end - before, count)
        exact = key[1] != "sent_bytes"
        if exact and abs(three - two - line.step(3)) > TOLERANCE * max(abs(two - one), abs(line.last)):
            return None
        lines[key] = line
    ((name, answer),) = near[-1].answers.items()
    nodes = tuple(_node(node, lines) for node in near[-1].nodes)
    times_s = tuple(lines["", "time_s"].after(token) for token in range(1, count + 1))
    answers = {name: TimedAnswer(name, answer.tokens[:1] * count, times_s, answer.reason)}
    return replace(near[-1], answers=answers, nodes=nodes, elapsed_s=lines["", "elapsed_s"].after(count))


def _values(found: ServingResult) -> Mapping[tuple[str, str], float]:
    """Return the quantities of *found* that grow with its answer, by node and name."""
    (answer,) = found.answers.values()
    growing = ("cache_bytes", "busy_s", "sent_bytes", "peak_memory_bytes")
    nodes = {(node.node, key): float(getattr(node, key)) for node in found.nodes for key in growing}
    return {("", "time_s"): answer.times_s[-1], ("", "elapsed_s"): found.elapsed_s, **nodes}


def _node(node: NodeUse, lines: Mapping[tuple[str, str], GrowthLine]) -> NodeUse:
    end = {key: line.after(line.count) for (name, key), line in lines.items() if name == node.node}
    return replace(
        node,
        cache_bytes=end["cache_bytes"],
        busy_s=end["busy_s"],
        sent_bytes=round(end["sent_bytes"]),
        peak_memory_bytes=end["peak_memory_bytes"],
    )
