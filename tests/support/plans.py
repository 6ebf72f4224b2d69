"""Fault plans for tests, spelt as in an experiment file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simcluster.documents.reading import DocumentReading
from simcluster.documents.yaml import Document, parse_value
from simcluster.fault_plans.kinds import Fault
from simcluster.fault_plans.read import read_faults
from simcluster.topology import Topology


def plan(topology: Topology, *faults: str | dict[str, Any], seed: int = 0) -> tuple[Fault, ...]:
    """The faults that YAML mappings without their braces say: plan(topology, "kind: crash, node: n1, at: 1 s")."""
    specs = [parse_value(f"{{{fault}}}") if isinstance(fault, str) else fault for fault in faults]
    reading = DocumentReading(Document({"faults": specs}), Path())
    found = read_faults(reading, topology, seed)
    assert not reading.problems, reading.problems
    return found
