"""Platforms in SimGrid's XML take the times that SimGrid 3.32 itself gave, for every form of routing.

data/simgrid_platforms.json: what is inside <platform>, and flows [source, target, bytes, start, finish], recorded with
SimGrid's default model (LV08 with cross-traffic), network/optim:Full, and a precision of 1e-9.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from simcluster_backends.sim.plain_flows import finish_times

from simcluster.documents.graph_names import node_name
from simcluster.topology import load
from simcluster.topology.plain_flows import PlainFlow
from tests.support.root import TESTS

CASES = json.loads((TESTS / "data" / "simgrid_platforms.json").read_text())
HEAD = '<?xml version="1.0"?><!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd"><platform version="4.1">'


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_flows_on_a_platform_end_when_they_do_in_simgrid(case: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "platform.xml"
    path.write_text(f"{HEAD}{case['platform']}</platform>")
    topology = load(path)
    assert topology.network == "lv08"
    *flows, ends = zip(*case["flows"], strict=True)
    plain = [PlainFlow(node_name(a), node_name(b), *rest) for a, b, *rest in zip(*flows, strict=True)]
    assert finish_times(topology, plain) == pytest.approx(ends, rel=1e-9)
