"""Fault plans for tests, spelt as in an experiment file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simcluster.experiment.fault_kinds import Fault
from simcluster.experiment.faults import read_faults
from simcluster.experiment.reading import Reading
from simcluster.topology import Topology
from simcluster.yaml_lines import Document, parse_value


def plan(topology: Topology, *faults: str | dict[str, Any], seed: int = 0) -> tuple[Fault, ...]:
    """The faults that YAML mappings without their braces say: plan(topology, "kind: crash, node: n1, at: 1 s")."""
    specs = [parse_value(f"{{{fault}}}") if isinstance(fault, str) else fault for fault in faults]
    reading = Reading(Document({"faults": specs}), Path())
    found = read_faults(reading, topology, seed)
    assert not reading.problems, reading.problems
    return found
