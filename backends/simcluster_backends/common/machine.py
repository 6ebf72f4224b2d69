"""Readings of a node's process and machine: processor, memory, temperature, as far as the system tells."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import psutil

CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal", "soc_thermal")
"""Sensors of processors by psutil's names; without any of them, the hottest sensor of all counts."""

COLDEST_C, HOTTEST_C = 0.0, 150.0
"""A sensor that reads outside of this is broken or not connected."""


class MachineMeter:
    """Takes readings with psutil; *latest* is the last one. Percentages are of the time since the one before.

    `cpu_percent` is in percent of one core; the other keys are in simcluster_backends.common.log_line. Call `read` from
    one thread, which a sensor may hold up; a reading that fails is left out.
    """

    def __init__(self) -> None:
        self.latest: dict[str, float] = {}
        self._process: Any = _tried(psutil.Process)
        self.read()  # the percentages count from here
        self.latest = {}

    def read(self) -> dict[str, float]:
        found = {
            "rss_bytes": _tried(lambda: self._process.memory_info().rss),
            "cpu_percent": _tried(lambda: self._process.cpu_percent()),
            "machine_cpu_percent": _tried(psutil.cpu_percent),
            "machine_memory_percent": _tried(lambda: psutil.virtual_memory().percent),
            "temperature_C": _tried(_temperature_C),
        }
        self.latest = {key: float(value) for key, value in found.items() if value is not None and math.isfinite(value)}
        return self.latest


def _tried(read: Callable[[], Any]) -> Any:
    """Return what *read* returns, or None: what a system lacks psutil reports in many ways, AttributeError included."""
    try:
        return read()
    except Exception:
        return None


def _temperature_C() -> float | None:
    sensors = psutil.sensors_temperatures()
    of_cpu = [name for name in sensors if name in CPU_SENSORS]
    read = [one.current for name in of_cpu or sensors for one in sensors[name] if one.current is not None]
    return max((value for value in read if COLDEST_C < value < HOTTEST_C), default=None)
