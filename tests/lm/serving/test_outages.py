"""Lost and returned nodes on the terminal of a server."""

from __future__ import annotations

from pathlib import Path

import pytest

import simcluster
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.serving.desk.request_broker import RequestBroker
from simcluster.lm.serving.outages import OutageLog
from simcluster.lm.serving.setup import PlacementLayout, PlacementState
from simcluster.lm.serving.start_server import ServingOptions, host, hosted
from simcluster.topology import Topology
from tests.lm.models.test_trained import SIZES, folder_of

LIMITS = EngineLimits(1, 1, 1)
WHOLE, REST = PlacementLayout("pipeline", (0, 1, 2), (1, 1, 1)), PlacementLayout("pipeline", (0, 2), (1, 2))


def test_a_line_says_which_node_is_lost_and_when_it_answers_again() -> None:
    lines: list[str] = []
    log = OutageLog(("a", "b", "c"), WHOLE, lines.append)
    log.opened(None)
    log.opened(PlacementState(WHOLE, LIMITS))
    assert lines == []
    log.opened(PlacementState(REST, LIMITS, {1: "killed"}))
    log.opened(PlacementState(REST, LIMITS, {1: "killed"}))
    assert lines == ["b is lost: killed; pipeline on a, c"]
    log.opened(PlacementState(WHOLE, LIMITS))
    assert lines[1:] == ["b answers again; pipeline on a, b, c"]


def test_lines_say_when_all_nodes_start_again_and_when_they_answer() -> None:
    lines: list[str] = []
    log = OutageLog(("a",), PlacementLayout("alone", (0,), (3,)), lines.append)
    log.ended("a is lost: its process ended")
    assert lines[0].startswith("a is lost: its process ended; all nodes start again")
    log.opened(None)
    assert lines[1:] == ["all answer again; alone on a"]


@pytest.mark.parametrize("placement", ["pipeline", "replicas"])
def test_a_server_on_a_simulated_cluster_tells_of_a_planned_loss(placement: str, tmp_path: Path) -> None:
    folder_of(tmp_path, SIZES)
    cluster, front, lines = Topology.star(3), RequestBroker(), list[str]()
    setup, _ = hosted(ServingOptions(str(tmp_path), placement=placement), cluster)

    def opened(line: str) -> None:
        lines.append(line)
        front.stop()

    with simcluster.faults() as plan:
        plan.crash("n1", at_s=0.005)  # virtual time goes on until the server is known to be idle
        host(setup, cluster, front, "sim", tell=opened)
    assert len(lines) == 1
    assert lines[0].startswith("n1 is lost: ")
