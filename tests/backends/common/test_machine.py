"""Readings of the machine, and of one that tells nothing: no failure of psutil reaches a node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from simcluster_backends.common import machine
from simcluster_backends.common.log_line import MACHINE
from simcluster_backends.common.machine import MachineMeter


def test_this_process_and_machine_are_read() -> None:
    found = MachineMeter().read()
    assert set(found) <= set(MACHINE)
    assert found["rss_bytes"] > 1_000_000
    assert 0 <= found["machine_memory_percent"] <= 100


@pytest.mark.parametrize(
    "error", [psutil.AccessDenied(1), psutil.NoSuchProcess(1), OSError("no /proc"), AttributeError("x"), ValueError()]
)
def test_whatever_psutil_raises_is_a_reading_left_out(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any, **keys: Any) -> Any:
        raise error

    for name in ("cpu_percent", "virtual_memory", "Process"):
        monkeypatch.setattr(psutil, name, fails)
    monkeypatch.setattr(psutil, "sensors_temperatures", fails, raising=False)
    broken = MachineMeter()
    assert broken.read() == broken.latest == {}


def temperature(sensors: dict[str, list[float | None]], monkeypatch: pytest.MonkeyPatch) -> float | None:
    read = {name: [SimpleNamespace(current=value) for value in values] for name, values in sensors.items()}
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: read, raising=False)
    return machine._temperature_C()


def test_the_temperature_is_the_processors_or_else_the_hottest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert temperature({"nvme": [80.0], "coretemp": [50.0, 61.0]}, monkeypatch) == 61.0
    assert temperature({"nvme": [38.0], "acpitz": [-273.0, None, 41.0, 65535.0]}, monkeypatch) == 41.0
    assert temperature({"acpitz": [0.0]}, monkeypatch) is None
    assert temperature({}, monkeypatch) is None
