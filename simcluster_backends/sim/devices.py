"""The duration of work on a node's device: measured, or roofline plus overhead; then its slowdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simcluster.fault_plans.kinds import Factors, stretched
from simcluster.rng import numpy_stream
from simcluster.transport import FREE, Cost
from simcluster_backends.sim.stragglers import slowdown_of

if TYPE_CHECKING:
    from simcluster.topology import Device


class DeviceModel:
    """The device of node *name*. Call `start` when a piece of work begins and `stop` when it ends.

    The caller must run one piece at a time, in the order requested, like the single compute thread of a real node.
    """

    def __init__(self, device: Device, seed: int, name: str) -> None:
        self._device = device
        # A separate stream: the algorithm's draws and the device's never mix.
        self._slowdown = slowdown_of(device.straggler, numpy_stream(seed, "straggler", name))
        self.faults: Factors = ()  # when the node is slowed further or stopped

    def start(self, cost: Cost, now_s: float) -> float:
        """Return the virtual seconds that *cost* takes if it starts now."""
        return stretched(self.faults, now_s, self._slowdown.start(now_s, undisturbed_s(self._device, cost)))

    def stop(self, now_s: float) -> None:
        """End the piece that started last, whether done or cancelled."""
        self._slowdown.stop(now_s)


def undisturbed_s(device: Device, cost: Cost) -> float:
    """Return the seconds that *cost* takes on *device* without slowdown.

    Use the measured time of its kind if there is one, else the roofline (Williams, Waterman, Patterson 2009): the
    slower of arithmetic at *flops_per_s* and memory traffic at *memory_bandwidth_Bps*, plus the overhead of launching
    the work and its operators. FREE takes no time.
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
