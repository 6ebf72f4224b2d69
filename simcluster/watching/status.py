"""Report the state of a run as JSON values for pages, terminals and programs.

The state has warnings about nodes and links that slow the run down.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from simcluster.watching.board import TelemetryBoard, plain

Values = dict[str, Any]
"""JSON values by name: those of a run, a node, a link or a warning."""

WARNINGS = ("lost", "stalled", "straggler", "link")
"""The kinds of warnings."""

SLOWER = 2.0
"""The ratio to the other nodes' median from which a node is a straggler."""

LEAST_STEPS = 3
"""Before this many steps, a node's rate is too uncertain to compare."""

BUSY = 0.9
"""The fraction of its bandwidth from which a link counts as full."""

STALLED_S = 5.0
"""The time after which a blocked event loop is reported."""


def run_status(board: TelemetryBoard) -> Values:
    """Return the run of *board*, its nodes, links, faults and warnings, without the history."""
    run = board.run
    last = board.last
    elapsed_s = last.elapsed_s if last is not None else 0.0
    end_s = board.predicted_end_s
    nodes = [
        node.model_dump() | {"steps_per_s": board.rate_of(node), "compute_s_per_step": board.compute_of(node)}
        for node in (last.nodes if last is not None else ())
    ]
    known = {"name", "attempt", "algorithm", "topology", "backend", "seed", "steps", "map"}
    found: Values = plain(
        run.model_dump(include=known)
        | {
            "state": board.state,
            "error": board.error,
            "world_size": len(run.nodes),
            "elapsed_s": elapsed_s,
            "step": board.steps,
            "loss": board.loss,
            **board.evaluation,
            "steps_per_s": board.steps_per_s,
            "predicted_end_s": end_s,
            "remaining_s": None if end_s is None else end_s - elapsed_s,
            "nodes": nodes,
            "links": _links(board),
            "faults": last.faults if last is not None else [],
            "warnings": warnings(board),
        }
    )
    return found


def _links(board: TelemetryBoard) -> list[Values]:
    rates = board.link_rates()
    found = []
    for link in board.last.links if board.last is not None else ():
        forward, backward = rates[link.name]
        busy = max(forward, backward) / link.capacity_Bps if link.capacity_Bps else None
        size_bytes = link.bytes_forward + link.bytes_backward
        more = {"bytes": size_bytes, "forward_Bps": forward, "backward_Bps": backward, "busy_fraction": busy}
        found.append(link.model_dump() | more)
    return found


def warnings(board: TelemetryBoard) -> list[Values]:
    """Return the warnings of *board* as {"kind", "name", "ratio", "text"}; links come last.

    "ratio" is None for lost and stalled nodes.
    """
    if board.last is None:
        return []
    found = []
    for node in board.last.nodes:
        if node.state == "lost":
            found.append(_warning("lost", node.name, None, f"{node.name} is lost: {node.reason}"))
    for node in board.last.nodes:
        if node.stalled_s >= STALLED_S and node.state == "running":
            text = f"{node.name}: its event loop has not turned for {node.stalled_s:.0f} s"
            found.append(_warning("stalled", node.name, None, text))
    found += _stragglers(board)
    rates = board.link_rates()
    for link in board.last.links:
        busy = max(rates[link.name]) / link.capacity_Bps if link.capacity_Bps else 0.0
        if busy >= BUSY:
            text = f"link {link.name} is full: {100 * busy:.0f} % of its bandwidth over the last seconds"
            found.append(_warning("link", link.name, busy, text))
    return found


def slowness(values: Mapping[str, float], compared: Sequence[str]) -> dict[str, float]:
    """Return the ratio of each of *values* to the median of the values of all others in *compared*.

    A value is not part of its own median: one of two nodes could never be twice such a median.
    """
    known = {name: values[name] for name in compared if name in values}
    ordered = sorted(known.values())
    found = {}
    for name, value in values.items():
        place = bisect_left(ordered, value) if name in known else len(ordered)
        number = len(ordered) - (name in known)
        if number:
            middle = [ordered[at + (at >= place)] for at in ((number - 1) // 2, number // 2)]
            if sum(middle) > 0:
                found[name] = value / (sum(middle) / 2)
    return found


def _stragglers(board: TelemetryBoard) -> list[Values]:
    """Return one warning per straggler, by its compute time if that is long, else by its step rate.

    Rank 0 is not among the compared nodes: the steps of a parameter server are those of all
    workers, and cost little.
    """
    assert board.last is not None
    nodes = [n for n in board.last.nodes if n.state not in ("lost", "expected") and n.step >= LEAST_STEPS]
    compared = [node.name for node in nodes if node.rank > 0]
    computing = {node.name: value for node in nodes if (value := board.compute_of(node)) is not None}
    times = slowness(computing, compared)
    rates = {node.name: board.rate_of(node) for node in nodes if node.state == "running"}
    per_step = {name: 1 / rate for name, rate in rates.items() if rate > 0}
    behind = slowness(per_step, compared)
    found = []
    for name in (node.name for node in nodes):
        if times.get(name, 0.0) >= SLOWER:
            ratio, own_s = times[name], computing[name]
            text = f"computes {ratio:.1f} times as long for a step: {_s(own_s)}, the others' median {_s(own_s / ratio)}"
        elif behind.get(name, 0.0) >= SLOWER:
            ratio, rate = behind[name], rates[name]
            text = f"makes {rate:.3g} steps/s, {ratio:.1f} times fewer than the others' median of {rate * ratio:.3g}"
        else:
            continue
        found.append(_warning("straggler", name, ratio, f"{name} {text}"))
    return found


def _warning(kind: str, name: str, ratio: float | None, text: str) -> Values:
    return {"kind": kind, "name": name, "ratio": ratio, "text": text}


def _s(time_s: float) -> str:
    return f"{time_s:.3g} s" if time_s >= 1 else f"{1000 * time_s:.3g} ms"
