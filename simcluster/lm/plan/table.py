"""A plan as text that fits 80 columns."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from simcluster.lm.plan.placements import Placement, PlacementPart, Ranking
from simcluster.lm.plan.plan import InferencePlan
from simcluster.lm.processor import told
from simcluster.topology import Topology
from simcluster.units import format_latency, format_size

WIDTH, ROWS, LISTED, NAMED = 80, 10, 3, 8
"""Columns; rows of a ranking; purchases; nodes of one kind."""
UNBROKEN = "\u00a0"
"""A space at which no line ends."""


def lines(plan: InferencePlan) -> Iterator[str]:
    """Yield the lines of *plan*: the model, then each ranking with what it leaves out and what to buy."""
    shape, lengths = plan.shape, plan.lengths
    some_read = f" ({shape.active_weights / 1e9:.3g} for a token)" if shape.parts.routed else ""
    size = f"{shape.weights / 1e9:.3g} billion weights{some_read}, {format_size(round(shape.whole_bytes))}"
    head = f"{shape.name} on {plan.topology.name}: {size}; "
    yield from wrapped(f"{head}{lengths.prompt} tokens of prompt in one chunk, {lengths.output} of answer")
    for line in (*usable(plan.topology), *gaps(plan.topology, plan.topology.workers)):
        yield from wrapped(line)
    for which, ranking in enumerate(plan.rankings):
        yield ""
        yield from _ranking(ranking)
        by_part = {one.part: one for one in reversed(plan.best_purchases(which))}  # the best of each part is last
        bought = [
            f"{one.part} for {one.place}, {one.price_usd:g} USD: {rounded(one.tokens_per_s[which])} tokens/s"
            f"{_more(one.tokens_per_s[which], ranking.best_per_s)}"
            for one in sorted(by_part.values(), key=lambda one: -one.tokens_per_s[which])[:LISTED]
        ]
        nothing = f"no part of the list {'gains a percent' if ranking.best_per_s else 'makes it fit'}"
        yield from wrapped(f"buy: {'; '.join(bought) or nothing}", "  ")


def _ranking(ranking: Ranking) -> Iterator[str]:
    title = "one request" if ranking.requests == 1 else f"{ranking.requests} requests"
    yield f"{title:<12}  tokens/s      TTFT  node, its layers (memory)"
    rows: dict[tuple[str, float, int], list[Placement]] = {}
    for one in ranking.placements:
        key = (one.kind, one.tokens_per_s, len(one.parts))
        rows.setdefault(key, []).append(one)
    for (kind, rate, _), (first, *equals) in [*rows.items()][:ROWS]:
        nodes = _groups(first) if kind in ("hybrid", "pipelines") else _nodes(first, kind == "pipeline")
        if equals:
            nodes += f"; as fast: {some([one.parts[0].node for one in equals])}"
        row = f"  {kind:<10}  {rounded(rate):>8}  {format_latency(first.ttft_s):>8}  {nodes}"
        yield from wrapped(row, "", " " * 34)
    if len(rows) > ROWS:
        yield f"  ... and {len(rows) - ROWS} more: --json"
    if not rows:
        yield "  nothing fits"
    best = ranking.best_per_s
    yield from grouped("left out", [(name, _with(rate, best)) for name, rate in ranking.left_out])
    for kind in ("alone", "pipeline", "tensor"):
        refused = [one for one in ranking.refused if one.kind == kind]
        yield from grouped(f"no {kind}", [(one.where, _missing(one.missing_bytes, one.why)) for one in refused])


def grouped(title: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield *title* and the names of *rows*, those with the same words together."""
    names: dict[str, list[str]] = {}
    for name, words in rows:
        names.setdefault(words, []).append(name)
    groups = [f"{some(those)} ({words})" for words, those in names.items()]
    if groups:
        yield from wrapped(f"{title}: {'; '.join(groups)}", "  ")


def some(names: Sequence[str]) -> str:
    """Return the first of *names*, and how many more there are."""
    rest = len(names) - NAMED
    return ", ".join(names) if rest <= 1 else f"{', '.join(names[:NAMED])} and {rest} more"


def _missing(missing_bytes: float | None, why: str) -> str:
    return why if missing_bytes is None else f"{format_size(math.ceil(missing_bytes))} missing"


def _nodes(placement: Placement, in_layers: bool) -> str:
    return some([_part(part, in_layers) for part in placement.parts])


def _groups(placement: Placement) -> str:
    """Describe the stages of each replica: the nodes that share one, its layers, and the memory of the fullest."""
    stages: dict[tuple[int, int], list[PlacementPart]] = {}
    for part in placement.parts:
        stages.setdefault((part.replica, part.stage), []).append(part)
    replicas: dict[int, list[str]] = {}
    for (replica, _), parts in stages.items():
        fullest = max(parts, key=lambda part: part.held_bytes)
        names = "+".join(part.node for part in parts)
        replicas.setdefault(replica, []).append(_part(replace(fullest, node=names), True))
    return " | ".join(some(texts) for texts in replicas.values())


def _part(part: PlacementPart, in_layers: bool) -> str:
    held = format_size(int(float(f"{part.held_bytes:.3g}")))
    return f"{part.node}{f' {part.layers}' * in_layers} ({held})".replace(" ", UNBROKEN)


def rounded(tokens_per_s: float) -> str:
    """Return a rate with four digits or more."""
    return f"{tokens_per_s:.4g}" if tokens_per_s < 9999 else f"{tokens_per_s:,.0f}"


def _with(rate: float | None, best: float) -> str:
    """Describe the best placement that uses a node: *rate* tokens per second, or None if there is none."""
    if rate is None:
        return "no placement with it fits"
    return "no slower with it" if rate >= best else f"with it {rounded(rate)} tokens/s, {percent(1 - rate / best)} less"


def _more(rate: float, best: float) -> str:
    return f", {percent(rate / best - 1)} more" if best else ", and it fits"


def percent(share: float) -> str:
    """Return *share* in percent."""
    return f"{100 * share:.3g} %"


def usable(topology: Topology) -> Iterator[str]:
    """Yield how much of their memory the workers can use, if it is not all of it."""
    alike: dict[str, list[str]] = {}
    for name in topology.workers:
        device = topology.nodes[name].device
        if device is not None and device.usable_bytes != device.memory_bytes:
            alike.setdefault(device.memory_words, []).append(name)
    if alike:
        yield f"usable memory: {'; '.join(f'{words} on {some(names)}' for words, names in alike.items())}"


def gaps(topology: Topology, names: Sequence[str]) -> Iterator[str]:
    """Yield what the devices of *names* lack, without which their times are too short."""
    yield from told(topology, names)
    devices = {name: device for name in names if (device := topology.nodes[name].device) is not None}
    if unknown := [name for name, device in devices.items() if math.isinf(device.memory_bandwidth_Bps)]:
        yield f"without memory_bandwidth, so timed by FLOPs alone: {some(unknown)}"
    free = [name for name, device in devices.items() if not device.work_overhead_s + device.operator_overhead_s]
    if free:
        yield f"without operator_overhead, so small models look too fast: {some(free)}"


def wrapped(text: str, indent: str = "", further: str | None = None) -> Iterator[str]:
    """Yield *text* in lines of WIDTH columns; all except the first are indented by *further*."""
    below = f"{indent}  " if further is None else further
    made = textwrap.TextWrapper(WIDTH, indent, below, break_long_words=False, break_on_hyphens=False)
    yield from (line.replace(UNBROKEN, " ") for line in made.wrap(text))
