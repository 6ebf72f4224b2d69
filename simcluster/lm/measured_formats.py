"""How fast nodes read weights in each format, by their calibration: profiles of devices have products."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from statistics import fmean

from simcluster.errors import UsageError
from simcluster.lm.formats import DEFAULT, FORMATS, PRODUCT_FLOPS, Precision, format_of, held_bytes, work_in
from simcluster.topology import Device, Topology
from simcluster.topology.model.compute import CPU


def speed(device: Device, name: str) -> float | None:
    """Return the speed of a product in the format *name* on *device*, relative to f32's.

    It is None if it was not measured, or if the device is an accelerator.
    """
    if device.profile is None or device.computes_on != CPU:
        return None
    seconds = [device.profile.seconds(work_in(one), PRODUCT_FLOPS) for one in (DEFAULT, name)]
    return seconds[0] / seconds[1] if seconds[0] and seconds[1] else None


def in_format(topology: Topology, name: str) -> Topology:
    """Return *topology* with devices that read weights in the format *name* at the measured speed.

    A device keeps its own if that was not measured.
    """
    if name == DEFAULT:
        return topology
    nodes = dict(topology.nodes)
    for worker in topology.workers:
        device = topology.device(worker)
        if (found := speed(device, name)) is not None:
            bandwidth_Bps = device.memory_bandwidth_Bps * found * held_bytes(name) / held_bytes(DEFAULT)
            nodes[worker] = replace(nodes[worker], device=replace(device, memory_bandwidth_Bps=bandwidth_Bps))
    return replace(topology, nodes=nodes)


def speeds(topology: Topology) -> dict[Precision, float]:
    """Return format -> mean speed relative to f32, of formats that were measured on all workers."""
    found: dict[Precision, float] = {DEFAULT: 1.0}
    for name in FORMATS:
        each = [speed(topology.device(worker), name) for worker in topology.workers]
        known = [one for one in each if one is not None]
        if known and len(known) == len(each):
            found[format_of(name)] = fmean(known)
    return found


def fastest(topology: Topology, check: Callable[[Precision], object]) -> Precision:
    """Return the format that the workers of *topology* read fastest, of those that fit.

    *check* raises UsageError for a format that does not fit. If none fits, raise that of the
    smallest.
    """
    found = speeds(topology)
    order = sorted(found, key=lambda name: (-found[name], held_bytes(name)))
    for name in order:
        with suppress(UsageError):
            check(name)
            return name
    smallest = min(order, key=held_bytes)
    check(smallest)
    return smallest


def measured_note(topology: Topology, precision: str) -> str:
    """Return a sentence on the format *precision*, and the speeds that were measured."""
    found = speeds(topology)
    if len(found) == 1:
        return f"weights: {precision}; no format was measured: `simcluster calibrate` does"
    words = ", ".join(f"{name} {rate:.2f}" for name, rate in found.items())
    return f"weights: {precision}; measured products of a token, relative to f32: {words}"
