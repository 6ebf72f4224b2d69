"""Write a calibration as a topology file, with the measured numbers, their spread and the date."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import date
from statistics import fmean
from typing import Any

import yaml

from simcluster.lab.calibrate.fit import HALF, MeasuredValue
from simcluster.lab.calibrate.rehearsed import LEAST_STARTUP_S, rehearsed_again, wakeup_of
from simcluster.lab.calibrate.run import Calibration, LinkFit, NodeFit, fitted
from simcluster.runs import words
from simcluster.topology import load
from simcluster.topology.model.compute import CPU, kind_of
from simcluster.topology.model.device import profile_block
from simcluster.topology.model.spread import spread_block
from simcluster.topology.read.spread import MOST_FACTOR
from simcluster.units import (
    format_bandwidth,
    format_latency,
    format_size,
    write_bandwidth,
    write_latency,
    write_rate,
    write_size,
)

DIGITS = 4
"""Significant digits of a measured number."""

MOST_ACK_SHARE = 0.5
"""Limit on the share of acknowledgements: beyond it, hosts cannot send both ways at full speed."""

LEAST_ACK_SHARE = 0.002
LEAST_OVERHEAD_S = 100e-9
LEAST_BUFFER_BYTES = 10_000
"""A measured send buffer smaller than this counts as noise and is left out."""

MACHINE = "this-machine"
"""Name of the machine that all nodes share if they ran as processes of this machine."""

LEAST_S = 1e-9
"""Limit below which a latency is a rounding error, and the spread of a number is meaningless."""


def calibrated_document(calibration: Calibration) -> dict[str, Any]:
    """Return the topology's document with measured values in place of the original ones.

    A measured device loses its `straggler` key: the measured times include the slowdown. Nodes that
    were processes of one machine share its cores.
    """
    document: dict[str, Any] = copy.deepcopy(dict(calibration.topology.document))
    if calibration.cores is not None:
        document["machines"] = {MACHINE: {"cores": calibration.cores}}
    for key in ("misfit", "startup"):
        document.pop(key, None)
    for position, link in calibration.links.items():
        block = document["links"][position]
        block.pop("spread", None)
        given = calibration.topology.links[position]
        block["latency"] = write_latency(_rounded(link.latency_s) if link.latency_s >= LEAST_S else 0.0)
        if link.is_bottleneck or link.bandwidth_Bps.value > given.bandwidth_Bps:
            block["bandwidth"] = write_bandwidth(_rounded(link.bandwidth_Bps.value))
        if link.is_bottleneck:
            # The share of each direction when both are in use distinguishes full from half duplex;
            # acknowledgements explain the rest.
            half = given.duplex == "half" or link.both_ways.value < HALF
            block |= {"duplex": "half"} if half else {}
            ack_share = _ack_share(link.both_ways.value, half)
            block |= {"ack_share": float(f"{ack_share:.2g}")} if ack_share >= LEAST_ACK_SHARE else {}
    for name, node in calibration.nodes.items():
        block = document["nodes"][name]
        if calibration.cores is not None:
            block["machine"] = MACHINE
        for key, overhead in (("send_overhead", node.send_overhead_s), ("recv_overhead", node.recv_overhead_s)):
            if overhead is not None and overhead.value >= LEAST_OVERHEAD_S:
                block[key] = write_latency(_rounded(overhead.value))
            elif overhead is not None:
                block.pop(key, None)
        if node.send_buffer_bytes >= LEAST_BUFFER_BYTES:
            block["send_buffer"] = write_size(int(float(f"{node.send_buffer_bytes:.2g}")))
        elif node.send_overhead_s is not None:
            block.pop("send_buffer", None)
        if node.work:
            taken = node.profile.items()
            measured = {kind: {flops: _rounded(s.value) for flops, s in points.items()} for kind, points in taken}
            _put_profile(block, calibration, node, profile_block(measured))
            block.pop("straggler", None)
        block.pop("spread", None)
    _add_spread(document, calibration)
    return document


def _put_profile(block: dict[str, Any], calibration: Calibration, node: NodeFit, profile: dict[str, Any]) -> None:
    """Write *profile* into *block*, under the CPU or accelerator that did the work.

    In a calibration of real nodes, also name it in `compute`.
    """
    given = calibration.topology.nodes[node.name]
    device = calibration.topology.device(node.name)
    place = block
    on_accelerator = device.cpu is not None
    if calibration.real:
        on_accelerator = bool(node.accelerator)
        if given.compute != CPU or node.accelerator:
            asked = kind_of(given.compute) == node.accelerator
            block["compute"] = given.compute if asked else node.accelerator or CPU
    if on_accelerator and (device.accelerator is not None or device.name != "custom"):
        place = block["accelerator"] = dict(block.get("accelerator") or {})
        if node.accelerator and (device.accelerator is None or device.accelerator.kind != node.accelerator):
            place |= {"kind": node.accelerator, "flops": write_rate(device.flops_per_s)}
    place["profile"] = (place.get("profile") or {}) | profile


def _ack_share(both_ways: float, half: bool | None = None) -> float:
    """Return the share of the opposite direction that acknowledgements take.

    *half* says whether the link is half duplex; if None, *both_ways* decides.
    """
    half = both_ways < HALF if half is None else half
    return min(MOST_ACK_SHARE, (0.5 if half else 1.0) / both_ways - 1)


def _add_spread(document: dict[str, Any], calibration: Calibration) -> None:
    """Fit each round separately, and write its ratios to the fit of all rounds into *document*."""
    rounds = calibration.rounds
    own = {number: [row for row in rounds.rows if row.number == number] for number in rounds.kept}
    each = [fitted(calibration.topology, rows, rounds, 0.0) for rows in own.values()]
    if len(each) < 2:
        return
    for position, link in calibration.links.items():
        if block := spread_block(_of_link(link, [fit.links[position] for fit in each])):
            document["links"][position]["spread"] = block
    for name, node in calibration.nodes.items():
        if block := spread_block(_of_node(node, [fit.nodes[name] for fit in each])):
            document["nodes"][name]["spread"] = block
    topology = load(document)
    if calibration.cores is not None and (wakeup_s := wakeup_of(topology, own)) >= LEAST_STARTUP_S:
        document["machines"][MACHINE]["wakeup"] = write_latency(float(f"{wakeup_s:.4g}"))
        topology = load(document)
    rehearsed = [rehearsed_again(topology, rows, index, number) for index, (number, rows) in enumerate(own.items())]
    document |= spread_block({"misfit": [misfit for misfit, _ in rehearsed]})
    if any(startup_s for _, startup_s in rehearsed):
        document["startup"] = [write_latency(float(f"{startup_s:.4g}")) for _, startup_s in rehearsed]


def _of_link(link: LinkFit, found: Sequence[LinkFit]) -> dict[str, list[float]]:
    """Return key -> one factor of *link* per round, from *found*, the fits of the rounds."""
    measured = {"latency": _factors(link.latency_s, [fit.latency_s for fit in found])}
    if link.is_bottleneck:
        measured["bandwidth"] = _factors(link.bandwidth_Bps.value, [fit.bandwidth_Bps.value for fit in found])
        shares = [max(1e-3, _ack_share(fit.both_ways.value)) for fit in found]
        measured["ack_share"] = _factors(_ack_share(link.both_ways.value), shares)
    return measured


def _of_node(node: NodeFit, found: Sequence[NodeFit]) -> dict[str, list[float]]:
    """Return key -> one factor of *node* per round, from *found*, the fits of the rounds."""
    measured = {}
    for key in ("send_overhead", "recv_overhead"):
        values: list[MeasuredValue | None] = [getattr(fit, f"{key}_s") for fit in (node, *found)]
        whole_s, *each_s = (value.value if value is not None else 0.0 for value in values)
        measured[key] = [max(factor, 1e-3) for factor in _factors(whole_s, each_s)]
    if node.work:
        measured["profile"] = _factors(_work_s(node), [_work_s(fit) for fit in found])
    return measured


def _work_s(node: NodeFit) -> float:
    """Return the seconds of a step's work: the sum over kinds of the mean over measured sizes."""
    return sum(fmean(value.value for value in points.values()) for points in node.work.values() if points)


def _factors(whole: float, rounds: Sequence[float]) -> list[float]:
    """Return the ratio of each round's value to *whole*, at most MOST_FACTOR.

    Fits of single rounds can be absurd. All ratios are 1 if *whole* is too small.
    """
    return [min(value / whole, MOST_FACTOR) for value in rounds] if whole >= LEAST_S else [1.0] * len(rounds)


def calibrated_text(calibration: Calibration, day: date) -> str:
    """Return the topology file: the day, medians and ranges as comments, then the document."""
    document = calibrated_document(calibration)
    rounds = calibration.rounds
    heading = [
        f"Measured on {day.isoformat()} in {calibration.elapsed_s:.0f} s by `simcluster calibrate`.",
        "Medians, in brackets the quartiles; of a link the extremes over the ways that it is the slowest link of.",
        f"{words.plural(len(rounds.kept), 'round')} kept, {len(rounds.rejected)} disturbed and set aside; of the kept "
        f"ones {words.plural(rounds.replaced, 'sample')} replaced.",
        *(f"Round {number}: {reason}." for number, reason in rounds.rejected.items()),
        "",
    ]
    comments = "\n".join(f"# {line}".rstrip() for line in [*heading, *describe(calibration)])
    return f"{comments}\n{yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)}"


def describe(calibration: Calibration) -> list[str]:
    """Return the measurements of paths, links and nodes, one line each."""
    workers = calibration.topology.workers
    lines = [
        f"way {workers[way.a]} to {workers[way.b]}: {_seconds(way.startup_s)} and {_rate(way.bandwidth_Bps)}, "
        f"both ways at once {way.both_ways.value:.3f} of that; one long message off by {way.misfit:+.1%}"
        for way in calibration.ways
    ]
    for link in calibration.links.values():
        least = f"at least {format_bandwidth(link.bandwidth_Bps.value)}: no way's slowest link"
        rate = _rate(link.bandwidth_Bps) if link.is_bottleneck else least
        lines.append(f"link {link.name}: {format_latency(_rounded(link.latency_s))}, {rate}")
    for node in calibration.nodes.values():
        for kind, points in node.profile.items():
            lines += [f"node {node.name}: {kind} of {flops} FLOPs {_seconds(value)}" for flops, value in points.items()]
        if node.send_overhead_s is not None and node.recv_overhead_s is not None:
            sends, receives = _seconds(node.send_overhead_s), _seconds(node.recv_overhead_s)
            line = f"node {node.name}: a message takes {sends} to send, {receives} to receive"
            ahead = node.send_buffer_bytes >= LEAST_BUFFER_BYTES
            lines.append(line + f"; {format_size(node.send_buffer_bytes)} or more leave after their send" * ahead)
    return lines


def _seconds(value: MeasuredValue) -> str:
    return f"{_time(value.value)} ({_time(value.low)} to {_time(value.high)})"


def _time(seconds: float) -> str:
    seconds = round(seconds, 9)  # The difference of two equal times may be a rounding error.
    return f"-{format_latency(-seconds)}" if seconds < 0 else format_latency(seconds)


def _rate(value: MeasuredValue) -> str:
    low, high = format_bandwidth(value.low), format_bandwidth(value.high)
    return f"{format_bandwidth(value.value)} ({low} to {high})"


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
