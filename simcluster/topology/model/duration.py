"""The duration of work on a device: measured, or roofline plus overhead."""

from __future__ import annotations

from simcluster.topology.model.device import Device
from simcluster.transport import FREE, Cost


def undisturbed_s(device: Device, cost: Cost) -> float:
    """Return the seconds that work of *cost* takes on *device* without its straggler.

    Use the measured time of its kind if there is one, else the roofline (Williams, Waterman, Patterson 2009): the
    slower of arithmetic at *flops_per_s* and memory traffic at *memory_bandwidth_Bps*, plus the overhead of launching
    the work and its operators. FREE takes no time.
    """
    if not cost.flops and cost == FREE:
        return 0.0
    measured_s = device.profile.seconds(cost.kind, cost.flops) if device.profile is not None else None
    if measured_s is not None:
        return measured_s
    arithmetic_s = cost.flops / device.flops_per_s
    memory_s = cost.memory_bytes / device.memory_bandwidth_Bps
    overhead_s = device.work_overhead_s + cost.operators * device.operator_overhead_s
    return overhead_s + max(arithmetic_s, memory_s)


def expected_s(device: Device, cost: Cost) -> float:
    """Return the mean seconds that work of *cost* takes on *device* with its straggler."""
    return undisturbed_s(device, cost) * (device.straggler.mean_factor if device.straggler is not None else 1.0)
