"""The doors to the backends are light, and lead to one of the classes that the library knows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from simcluster.backend import BACKENDS, Backend, RealNodes, Simulator, backend_named, real_nodes, simulator

LIGHT = """
import sys
from simcluster.backend import BACKENDS, backend_named
for name in BACKENDS:
    backend_named(name)
print(*sorted({"torch", "numpy", "simpy", "pydantic"} & set(sys.modules)))
"""


def test_a_door_imports_nothing_large() -> None:
    said = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert said.stdout.split() == []


@pytest.mark.parametrize("name", BACKENDS)
def test_every_name_leads_to_a_backend(name: str) -> None:
    assert isinstance(backend_named(name), Backend)


def test_virtual_time_and_machines_have_doors_of_their_own() -> None:
    assert isinstance(simulator(), Simulator)
    assert isinstance(real_nodes(), RealNodes)
