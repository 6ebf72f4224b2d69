"""The device of a node: its numbers and its measured profile, frozen, in SI units."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from simcluster.topology.model.compute import AUTO, CPU, kind_of
from simcluster.topology.model.stragglers import Straggler
from simcluster.units import (
    format_latency,
    format_memory_bandwidth,
    format_power,
    format_rate,
    format_size,
    write_amount,
    write_latency,
)

Points = tuple[tuple[float, float], ...]
"""(FLOPs, seconds), in order of FLOPs. A single point at 0 FLOPs holds for work of any size."""


@dataclass(frozen=True)
class Profile:
    """Measured times of work: *kinds* has pairs, (kind of work as in `Cost.kind`, points)."""

    kinds: tuple[tuple[str, Points], ...]

    def seconds(self, kind: str, flops: float) -> float | None:
        """Return the measured time of *flops* of work of this *kind*; None if it was not measured.

        Interpolate linearly between points. Beyond the outer points, extend the line through the
        two nearest ones, which never falls and is never below 0 s. Scale a single point in
        proportion, unless it is at 0 FLOPs.
        """
        points = next((points for name, points in self.kinds if name == kind), None)
        return None if points is None else _read_off(points, flops)

    def __str__(self) -> str:
        return f"measured for {', '.join(kind for kind, _ in self.kinds)}"


class Reserve(NamedTuple):
    """The memory of a device that its operating system keeps from processes.

    A process can use *share* of the memory, or *large_share* if the device has *large_bytes* or
    more, less *fixed_bytes*.
    """

    fixed_bytes: int = 0
    share: float = 1.0
    large_share: float = 1.0
    large_bytes: float = math.inf

    def leaves(self, memory_bytes: int) -> int:
        share = self.share if memory_bytes < self.large_bytes else self.large_share
        return max(0, round(memory_bytes * share) - self.fixed_bytes)


NOTHING_KEPT = Reserve()


@dataclass(frozen=True)
class Accelerator:
    """A machine's accelerator: *kind* is cuda or mps, the other fields are as in Device.

    *memory_bytes* is None if the accelerator uses the machine's memory.
    """

    kind: str
    flops_per_s: float
    memory_bandwidth_Bps: float = math.inf
    memory_bytes: int | None = None
    work_overhead_s: float = 0.0
    operator_overhead_s: float = 0.0
    profile: Profile | None = None


@dataclass(frozen=True)
class Device:
    """The performance, memory and cost of a device.

    *flops_per_s* and *memory_bandwidth_Bps* form a roofline. Other fields make work slower.

    - *memory_bandwidth_Bps* is infinite and *memory_bytes* is None if the file omits them, which
      means no limit.
    - *usable_memory_bytes*: the memory that a process can use. If None, *reserve* determines it.
    - *threads*: the number of CPU threads that together reach *flops_per_s*.
    - *work_overhead_s* is added to every piece of work, *operator_overhead_s* for each of its
      operators: the launch cost in framework and driver.
    - *profile*: measured times. They replace all of the above for the kinds of work in it.
    - *straggler*: additional slowdown, if any.
    - *power_idle_W* and *power_busy_W* are both given or both None. *price_USD_per_h* is None if
      unknown.
    - *computes_on*: the part that these numbers describe, cpu or an accelerator. *cpu* is the same
      device with the numbers of its CPU if these are the *accelerator*'s, else None.

    *name* is the preset's, or "custom". *source* says where the numbers come from.
    """

    name: str
    flops_per_s: float
    memory_bandwidth_Bps: float = math.inf
    memory_bytes: int | None = None
    usable_memory_bytes: int | None = None
    straggler: Straggler | None = None
    source: str = ""
    work_overhead_s: float = 0.0
    operator_overhead_s: float = 0.0
    profile: Profile | None = None
    power_idle_W: float | None = None
    power_busy_W: float | None = None
    price_USD_per_h: float | None = None
    accelerator: Accelerator | None = None
    reserve: Reserve = NOTHING_KEPT
    threads: int = 1
    computes_on: str = CPU
    cpu: Device | None = None

    def on(self, compute: str) -> Device:
        """Return this device with the numbers of the part that *compute* names.

        Call it on a device with the numbers of its CPU. "auto" is the accelerator, if there is one.
        If *compute* names an accelerator without numbers, keep the numbers of the CPU.
        """
        kind, found = kind_of(compute), self.accelerator
        if kind == CPU or (kind == AUTO and found is None):
            return self
        if found is None or kind not in (AUTO, found.kind):
            return replace(self, computes_on=compute)
        with_memory = self
        if found.memory_bytes is not None:
            own = found.memory_bytes
            with_memory = replace(self, memory_bytes=own, usable_memory_bytes=None, reserve=NOTHING_KEPT)
        return replace(
            with_memory,
            flops_per_s=found.flops_per_s,
            memory_bandwidth_Bps=found.memory_bandwidth_Bps,
            work_overhead_s=found.work_overhead_s,
            operator_overhead_s=found.operator_overhead_s,
            profile=found.profile,
            computes_on=found.kind if kind == AUTO else compute,
            cpu=self,
        )

    def on_threads(self, count: int) -> Device:
        """Return this device with the rate of *count* threads, if it computes on its CPU."""
        if self.computes_on != CPU or count >= self.threads:
            return self
        return replace(self, flops_per_s=self.flops_per_s * count / self.threads, threads=count)

    @property
    def usable_bytes(self) -> int | None:
        """The memory that a process can use; None if it is not limited."""
        if self.usable_memory_bytes is not None or self.memory_bytes is None:
            return self.usable_memory_bytes
        return self.reserve.leaves(self.memory_bytes)

    @property
    def memory_words(self) -> str:
        """The usable memory in words, such as "16 of 24 GB"; "" if it is not limited."""
        usable, whole = self.usable_bytes, self.memory_bytes
        if usable is None or whole is None or usable == whole:
            return "" if usable is None else format_size(usable)
        (number, unit), written = format_size(int(float(f"{usable:.3g}"))).split(), format_size(whole)
        return f"{number} of {written}" if written.endswith(f" {unit}") else f"{number} {unit} of {written}"

    @property
    def own_keys(self) -> tuple[str, ...]:
        """The path of the numbers in use within a node of a file: () or ("accelerator",)."""
        return ("accelerator",) if self.cpu is not None else ()

    @property
    def has_what_it_is_asked(self) -> bool:
        """Whether the numbers in use are those of the requested part.

        They are not if the node should compute on an accelerator that its preset does not have.
        """
        found = self.accelerator
        return self.computes_on == CPU or self.cpu is not None or (self.name == "custom" and found is None)

    def __str__(self) -> str:
        """Return the numbers in words: "2.9 TFLOP/s, memory 16 GB at 103 GB/s, 4 W to 40 W"."""
        words = [format_rate(self.flops_per_s)]
        memory = [self.memory_words] if self.usable_bytes is not None else []
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


def profile_block(measured: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    """Return *measured* (kind -> FLOPs -> seconds) as a node's `profile` in a topology file.

    A kind that was measured only at 0 FLOPs takes the same time for work of any size.
    """
    return {
        kind: write_latency(points[0])
        if set(points) == {0}
        else {write_amount(flops): write_latency(points[flops]) for flops in sorted(points)}
        for kind, points in measured.items()
    }


def _read_off(points: Sequence[tuple[float, float]], flops: float) -> float:
    first_flops, first_s = points[0]
    if len(points) == 1:
        return first_s * flops / first_flops if first_flops else first_s
    index = bisect_left(points, flops, key=lambda point: point[0])
    if index == 0:
        rise = _slope(points[0], points[1])
        at_zero_s = max(0.0, first_s - rise * first_flops)
        return _between(at_zero_s, first_s, flops / first_flops)
    if index == len(points):
        last_flops, last_s = points[-1]
        return last_s + _slope(points[-2], points[-1]) * (flops - last_flops)
    (below_flops, below_s), (above_flops, above_s) = points[index - 1], points[index]
    return _between(below_s, above_s, (flops - below_flops) / (above_flops - below_flops))


def _between(below_s: float, above_s: float, share: float) -> float:
    """Interpolate linearly; return exactly *below_s* at a *share* of 0 and *above_s* at 1."""
    return below_s * (1 - share) + above_s * share


def _slope(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return the seconds per FLOP from *a* to *b*; 0 if noise makes the larger work look faster."""
    return max(0.0, (b[1] - a[1]) / (b[0] - a[0]))
