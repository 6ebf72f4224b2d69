"""What a run had drawn from the wall by some moment: the bill of `energy`, as it grows.

At the end of the run it is the summary's joules, to what the trace rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simcluster.errors import Problem, UsageError

if TYPE_CHECKING:
    from simcluster.runs.folder import RunFolder
    from simcluster.topology import Topology


class EnergyBy:
    """The joules of all devices of *run* together by any moment. All are switched on from the start."""

    def __init__(self, run: RunFolder) -> None:
        """Raises UsageError, naming them, if devices of the run's topology do not say what they draw."""
        from simcluster.topology import load

        topology = load(run.config["topology"])
        _check_power(topology)
        steps = [(0.0, sum(_watts(topology, rank)[0] for rank in range(len(topology.workers))))]
        for rank, start_s, end_s, share in _works(run):
            idle_W, busy_W = _watts(topology, rank)
            more_W = share * (busy_W - idle_W)
            steps += [(start_s, more_W), (end_s, -more_W)]
        steps.sort()
        self._times_s = np.array([time_s for time_s, _ in steps] + [max(steps[-1][0], run.summary["elapsed_s"])])
        watts = np.cumsum([more_W for _, more_W in steps])
        self._joules = np.concatenate([[0.0], np.cumsum(watts * np.diff(self._times_s))])

    def by(self, times_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(np.interp(times_s, self._times_s, self._joules), dtype=np.float64)


def _works(run: RunFolder) -> Iterator[tuple[int, float, float, float]]:
    """(rank, from, to, share of that time in which the device worked)."""
    for rank, span in run.spans:
        if span.kind == "compute":
            yield rank, span.start_s, span.end_s, 1.0
    for rank, rest in run.rests.items():
        for part, busy_s in enumerate(rest.busy_s):
            if busy_s:
                yield rank, part * rest.width_s, (part + 1) * rest.width_s, busy_s / rest.width_s


def _watts(topology: Topology, rank: int) -> tuple[float, float]:
    """(idle, busy) of a device that says both."""
    device = topology.nodes[topology.workers[rank]].device
    assert device is not None, "a worker has a device"
    assert device.power_idle_W is not None, "asked before whether it has"
    assert device.power_busy_W is not None, "they come together"
    return device.power_idle_W, device.power_busy_W


def _check_power(topology: Topology) -> None:
    problems = [
        Problem(
            f"topology.nodes.{name}.device",
            f"{device.name} without power_idle and power_busy",
            "both at every device, to tell energy: {power_idle: 4 W, power_busy: 40 W}",
        )
        for name in topology.workers
        if (device := topology.nodes[name].device) is not None and device.power_idle_W is None
    ]
    if problems:
        raise UsageError(problems)
