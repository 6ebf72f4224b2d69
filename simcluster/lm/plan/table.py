"""An inference plan as text with at most 80 columns."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from simcluster.lm.plan.engines import DEFAULT
from simcluster.lm.plan.placements import Placement, PlacementPart, Ranking
from simcluster.lm.plan.plan import InferencePlan
from simcluster.topology import Topology
from simcluster.topology.idle_links import idle_words
from simcluster.units import format_latency, format_size

WIDTH = 80
ROWS = 10
LISTED = 3
NAMED = 8
"""Limits on columns, rows of a ranking, purchases, and nodes that a line names."""
UNBROKEN = "\u00a0"
"""A no-break space, where lines are not wrapped."""


def lines(plan: InferencePlan) -> Iterator[str]:
    """Yield the lines of *plan*: the model, then each ranking with unused nodes and purchases."""
    shape, lengths = plan.shape, plan.lengths
    some_read = f" ({shape.active_weights / 1e9:.3g} for a token)" if shape.parts.routed else ""
    size = f"{shape.weights / 1e9:.3g} billion weights{some_read}, {format_size(round(shape.whole_bytes))}"
    head = f"{shape.name} on {plan.topology.name}: {size}; "
    yield from wrapped(f"{head}{lengths.prompt} tokens of prompt in one chunk, {lengths.output} of answer")
    engine = f"engine: {plan.engine}{', which `simcluster serve` runs' if plan.engine == DEFAULT else ''}"
    names = plan.topology.workers
    notes = gaps(plan.topology, names) if plan.engine == DEFAULT else unbounded(plan.topology, names)
    for line in (engine, *usable(plan.topology), *idle_words(plan.topology), *notes):
        yield from wrapped(line)
    for which, ranking in enumerate(plan.rankings):
        yield ""
        yield from _ranking(plan, ranking)
        # Go backwards, so that the best purchase of each part comes last and replaces the others.
        by_part = {one.part: one for one in reversed(plan.best_purchases(which))}
        bought = [
            f"{one.part} for {one.place}, {one.price_usd:g} USD: {rounded(one.tokens_per_s[which])} tokens/s"
            f"{_more(one.tokens_per_s[which], ranking.best_per_s)}"
            for one in sorted(by_part.values(), key=lambda one: -one.tokens_per_s[which])[:LISTED]
        ]
        nothing = f"no part of the list {'gains a percent' if ranking.best_per_s else 'makes it fit'}"
        yield from wrapped(f"buy: {'; '.join(bought) or nothing}", "  ")


def _ranking(plan: InferencePlan, ranking: Ranking) -> Iterator[str]:
    title = "one request" if ranking.requests == 1 else f"{ranking.requests} requests"
    yield f"{title:<12}  tokens/s     interval      TTFT  node, its layers (memory)"
    rows: dict[tuple[str, float, int], list[Placement]] = {}
    for one in ranking.placements:
        key = (one.kind, one.tokens_per_s, len(one.parts))
        rows.setdefault(key, []).append(one)
    for (kind, rate, _), (first, *equals) in [*rows.items()][:ROWS]:
        nodes = _groups(first) if kind in ("hybrid", "pipelines") else _nodes(first, kind == "pipeline")
        if equals:
            nodes += f"; as fast: {some([one.parts[0].node for one in equals])}"
        low, high = (f"{float(f'{end:.3g}'):g}" for end in plan.interval(first).around(rate))
        row = f"  {kind:<10}  {rounded(rate):>8}  {f'{low}-{high}':>11}  {format_latency(first.ttft_s):>8}  {nodes}"
        yield from wrapped(row, "", " " * 47)
    if len(rows) > ROWS:
        yield f"  ... and {len(rows) - ROWS} more: --json"
    if rows:
        yield from wrapped(plan.source(ranking), "  ")
    else:
        yield "  nothing fits"
    best = ranking.best_per_s
    yield from grouped("left out", [(name, _with(rate, best)) for name, rate in ranking.left_out])
    for kind in ("alone", "pipeline", "tensor"):
        refused = [one for one in ranking.refused if one.kind == kind]
        yield from grouped(f"no {kind}", [(one.where, _missing(one.missing_bytes, one.why)) for one in refused])


def grouped(title: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield *title* with the names of *rows*, grouped by their descriptions.

    Yield nothing if *rows* is empty.
    """
    names: dict[str, list[str]] = {}
    for name, words in rows:
        names.setdefault(words, []).append(name)
    groups = [f"{some(those)} ({words})" for words, those in names.items()]
    if groups:
        yield from wrapped(f"{title}: {'; '.join(groups)}", "  ")


def some(names: Sequence[str]) -> str:
    """Return the first NAMED of *names* as text, with the number of the others."""
    rest = len(names) - NAMED
    return ", ".join(names) if rest <= 1 else f"{', '.join(names[:NAMED])} and {rest} more"


def _missing(missing_bytes: float | None, why: str) -> str:
    return why if missing_bytes is None else f"{format_size(math.ceil(missing_bytes))} missing"


def _nodes(placement: Placement, in_layers: bool) -> str:
    return some([_part(part, in_layers) for part in placement.parts])


def _groups(placement: Placement) -> str:
    """Describe the stages of each replica by nodes, layers, and the memory of the fullest node."""
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
    return f"{part.node}{f' {part.layers}' * in_layers} ({about(part.held_bytes)})".replace(" ", UNBROKEN)


def rounded(tokens_per_s: float) -> str:
    """Return a rate as text with four significant digits, or from 9,999 on as a whole number."""
    return f"{tokens_per_s:.4g}" if tokens_per_s < 9999 else f"{tokens_per_s:,.0f}"


def _with(rate: float | None, best: float) -> str:
    """Describe the best placement that uses a node, at *rate* tokens/s, in comparison to *best*.

    *rate* is None if no placement with the node fits.
    """
    if rate is None:
        return "no placement with it fits"
    return "no slower with it" if rate >= best else f"with it {rounded(rate)} tokens/s, {percent(1 - rate / best)} less"


def _more(rate: float, best: float) -> str:
    return f", {percent(rate / best - 1)} more" if best else ", and it fits"


def about(size: float) -> str:
    """Return *size*, which is in bytes, as text with three significant digits."""
    return format_size(int(float(f"{size:.3g}")))


def percent(share: float) -> str:
    """Return *share* as text in percent."""
    return f"{100 * share:.3g} %"


def usable(topology: Topology) -> Iterator[str]:
    """Yield a line on the usable memory of workers, if some cannot use all of their memory."""
    alike: dict[str, list[str]] = {}
    for name in topology.workers:
        device = topology.device(name)
        if device.usable_bytes != device.memory_bytes:
            alike.setdefault(device.memory_words, []).append(name)
    if alike:
        yield f"usable memory: {'; '.join(f'{words} on {some(names)}' for words, names in alike.items())}"


def gaps(topology: Topology, names: Sequence[str]) -> Iterator[str]:
    """Yield a line for each setting that devices of *names* lack.

    Missing settings make the predicted times too short.
    """
    yield from unbounded(topology, names)
    devices = {name: device for name in names if (device := topology.nodes[name].device) is not None}
    free = [name for name, device in devices.items() if not device.work_overhead_s + device.operator_overhead_s]
    if free:
        yield f"without operator_overhead, so small models look too fast: {some(free)}"


def unbounded(topology: Topology, names: Sequence[str]) -> Iterator[str]:
    """Yield a line on the devices of *names* that lack a memory bandwidth, if there are any."""
    devices = {name: device for name in names if (device := topology.nodes[name].device) is not None}
    if unknown := [name for name, device in devices.items() if math.isinf(device.memory_bandwidth_Bps)]:
        yield f"without memory_bandwidth, so timed by FLOPs alone: {some(unknown)}"


def wrapped(text: str, indent: str = "", further: str | None = None) -> Iterator[str]:
    """Yield *text* in lines of WIDTH columns.

    The first line is indented by *indent*, the others by *further*.
    """
    below = f"{indent}  " if further is None else further
    made = textwrap.TextWrapper(WIDTH, indent, below, break_long_words=False, break_on_hyphens=False)
    yield from (line.replace(UNBROKEN, " ") for line in made.wrap(text))
