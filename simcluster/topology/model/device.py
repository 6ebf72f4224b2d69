"""The device of a node: its numbers, frozen, in SI units."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simcluster.topology.model.profile import Profile
from simcluster.topology.model.stragglers import Straggler
from simcluster.units import format_latency, format_memory_bandwidth, format_power, format_rate, format_size


@dataclass(frozen=True)
class Device:
    """A roofline of *flops_per_s* and *memory_bandwidth_Bps*, and everything that makes work slower than that.

    - *memory_bandwidth_Bps* is infinite and *memory_bytes* None if the file omits them: then they limit nothing.
    - *work_overhead_s* is added to every piece of work, *operator_overhead_s* to each of its operators: the launch cost
      in framework and driver.
    - *profile*: kinds of work that were measured take the measured time instead of all the above.
    - *straggler*: occasional slowdown on top. None: never.
    - *power_idle_W*, *power_busy_W* and *price_USD_per_h* are None if unknown; both powers are given, or neither.

    *name* is the preset's, or "custom". *source* says where the numbers come from.
    """

    name: str
    flops_per_s: float
    memory_bandwidth_Bps: float = math.inf
    memory_bytes: int | None = None
    straggler: Straggler | None = None
    source: str = ""
    work_overhead_s: float = 0.0
    operator_overhead_s: float = 0.0
    profile: Profile | None = None
    power_idle_W: float | None = None
    power_busy_W: float | None = None
    price_USD_per_h: float | None = None

    def __str__(self) -> str:
        """Return the numbers for people: 2.9 TFLOP/s, memory 16 GB at 103 GB/s, 20 us per operator, 4 W to 40 W."""
        words = [format_rate(self.flops_per_s)]
        memory = [format_size(self.memory_bytes)] if self.memory_bytes is not None else []
        if math.isfinite(self.memory_bandwidth_Bps):
            memory.append(f"at {format_memory_bandwidth(self.memory_bandwidth_Bps)}")
        if memory:
            words.append(f"memory {' '.join(memory)}")
        if self.work_overhead_s:
            words.append(f"{format_latency(self.work_overhead_s)} per piece of work")
        if self.operator_overhead_s:
            words.append(f"{format_latency(self.operator_overhead_s)} per operator")
        if self.power_idle_W is not None and self.power_busy_W is not None:
            words.append(f"{format_power(self.power_idle_W)} to {format_power(self.power_busy_W)}")
        if self.price_USD_per_h is not None:
            words.append(f"{self.price_USD_per_h:.4g} USD/h")
        words += [str(part) for part in (self.profile, self.straggler) if part is not None]
        return ", ".join(words)
