"""Readings of a node's process and machine: CPU, memory and temperature, if available."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import psutil

CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal", "soc_thermal")
"""psutil's names for CPU temperature sensors. Without any of these, all sensors count."""

COLDEST_C, HOTTEST_C = 0.0, 150.0
"""The limits of plausible temperatures: other readings come from broken or unconnected sensors."""


class MachineMeter:
    """A psutil-based meter for this process and machine; *latest* is the last reading.

    `log_line.MACHINE` has the keys of a reading; a value that cannot be read is absent. CPU
    percentages cover the time since the previous reading, and `cpu_percent` is in percent of one
    core. Call `read` from one thread only, since a slow sensor may block that thread.
    """

    def __init__(self) -> None:
        self.latest: dict[str, float] = {}
        self._process: Any = _tried(psutil.Process)
        self.read()  # CPU percentages count from here
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
    """Return the result of *read*, or None if it raises.

    psutil raises many kinds of errors for values that a system lacks, even AttributeError.
    """
    try:
        return read()
    except Exception:
        return None


def _temperature_C() -> float | None:
    sensors = psutil.sensors_temperatures()
    of_cpu = [name for name in sensors if name in CPU_SENSORS]
    read = [one.current for name in of_cpu or sensors for one in sensors[name] if one.current is not None]
    return max((value for value in read if COLDEST_C < value < HOTTEST_C), default=None)
