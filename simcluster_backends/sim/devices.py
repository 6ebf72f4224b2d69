"""The time of a piece of work on a node's device: measured, or roofline and overhead; then its slow-down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simcluster.fault_plans.kinds import Factors, stretched
from simcluster.rng import numpy_stream
from simcluster.transport import FREE, Cost
from simcluster_backends.sim.stragglers import slowdown_of

if TYPE_CHECKING:
    from simcluster.topology import Device


class DeviceModel:
    """The device of node *name*. Every piece of work is announced with `start` and, when it ends, with `stop`.

    One piece runs at a time, in the order asked for, as on the one thread that a real node computes with: whoever
    calls keeps to that.
    """

    def __init__(self, device: Device, seed: int, name: str) -> None:
        self._device = device
        # A stream of its own: the algorithm's draws and the device's never meet.
        self._slowdown = slowdown_of(device.straggler, numpy_stream(seed, "straggler", name))
        self.faults: Factors = ()  # when its node works more slowly still, or not at all

    def start(self, cost: Cost, now_s: float) -> float:
        """Virtual seconds that *cost* takes if it starts now."""
        return stretched(self.faults, now_s, self._slowdown.start(now_s, undisturbed_s(self._device, cost)))

    def stop(self, now_s: float) -> None:
        """The piece that started last ends now: it is done, or was cancelled."""
        self._slowdown.stop(now_s)


def undisturbed_s(device: Device, cost: Cost) -> float:
    """Seconds that *cost* takes on *device* when nothing slows it down.

    What was measured for its kind, if anything was. Else the roofline (Williams, Waterman, Patterson 2009): the slower
    of its arithmetic at *flops_per_s* and its memory traffic at *memory_bandwidth_Bps*; and, on top, what it takes to
    set the work and its operators going. FREE takes none.
    """
    if cost == FREE:
        return 0.0
    measured_s = device.profile.seconds(cost.kind, cost.flops) if device.profile is not None else None
    if measured_s is not None:
        return measured_s
    arithmetic_s = cost.flops / device.flops_per_s
    memory_s = cost.memory_bytes / device.memory_bandwidth_Bps
    overhead_s = device.work_overhead_s + cost.operators * device.operator_overhead_s
    return overhead_s + max(arithmetic_s, memory_s)
