"""A file of flows, and the commands that time them and the simulator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from simcluster_backends.sim.plain_flows import finish_times

from simcluster.errors import UsageError
from simcluster.lab.bench.simulator import bench_simulator
from simcluster.topology import load
from simcluster.topology.plain_flows import PlainFlow, read_flows
from tests.support.clusters import star

TOPOLOGY = """
name: two
nodes: {h0: {kind: host}, h1: {kind: host}, s0: {kind: switch}}
links:
  - {between: [h0, s0], bandwidth: 1000000.0 B/s, latency: 2e-05 s}
  - {between: [s0, h1], bandwidth: 1 MB/s, latency: 0 s}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "two.yaml").write_text(TOPOLOGY)
    flows = [{"src": "h0", "dst": "h1", "bytes": 1e6, "start": 0.5}, {"src": "h1", "dst": "h0", "bytes": 0}]
    (tmp_path / "flows.json").write_text(json.dumps(flows))
    return str(tmp_path / "two.yaml"), str(tmp_path / "flows.json")


def test_flows_are_timed_for_people_and_for_machines(command: Any, files: tuple[str, str]) -> None:
    topology, flows = files
    code, out, err = command("flows", "--topology", topology, "--flows", flows, "--json")
    # 0.5 s + 20 us + 1 MB / (1 MB/s); nothing takes the latency.
    assert (code, err) == (0, "")
    assert json.loads(out) == {"finish_s": [pytest.approx(1.50002, rel=1e-12), 2e-05]}
    code, out, _ = command("flows", "--topology", topology, "--flows", flows, "--model", "lv08")
    assert code == 0
    assert "h0 -> h1" in out


def test_flows_meet_what_the_topology_says_and_a_seed_draws_it(command: Any, files: tuple[str, str]) -> None:
    topology, flows = files
    rough = TOPOLOGY.replace("latency: 0 s", "latency: 0 s, jitter: 1 s")
    Path(topology).write_text(rough.replace("name: two", "name: two\nnetwork: lv08"))
    ends = []
    for seed in ("0", "0", "1"):
        code, out, _ = command("flows", "--topology", topology, "--flows", flows, "--json", "--seed", seed)
        assert code == 0
        ends.append(json.loads(out)["finish_s"])
    assert ends[0] == ends[1] != ends[2]
    # the topology's model: 13.01 latencies and 0.97 of the bandwidth, then the jitter
    assert ends[0][0] > 0.5 + 13.01 * 20e-6 + 1 / 0.97


def test_a_flow_that_never_ends_is_null(command: Any, files: tuple[str, str]) -> None:
    topology, flows = files
    Path(topology).write_text(TOPOLOGY.replace("latency: 0 s", "latency: 0 s, trace: {steps: {0 s: 1, 1 s: 0}}"))
    code, out, _ = command("flows", "--topology", topology, "--flows", flows, "--json")
    assert (code, json.loads(out)) == (0, {"finish_s": [None, 2e-05]})
    _, out, _ = command("flows", "--topology", topology, "--flows", flows)
    assert out.splitlines()[0].endswith("never done")


def test_everything_wrong_in_a_file_is_told_with_its_line(command: Any, files: tuple[str, str]) -> None:
    topology, flows = files
    Path(flows).write_text(
        '[{"src": "h9", "dst": "h1", "bytes": -1, "start": "1 s"},\n {"src": "h1", "dst": "h1"},\n 3]'
    )
    code, out, err = command("flows", "--topology", topology, "--flows", flows)
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert [line.split(": ")[1].split(":")[1] for line in lines] == ["1", "1", "1", "2", "3"]
    assert "did you mean 'h1'" in lines[0]
    assert "without a unit" in lines[2]


def test_a_flow_from_a_node_to_itself_is_refused(files: tuple[str, str]) -> None:
    topology, flows = files
    Path(flows).write_text('[{"src": "h1", "dst": "h1", "bytes": 1}]')
    with pytest.raises(UsageError, match="another node than h1"):
        read_flows(flows, load(topology))


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'lv08'"):
        finish_times(star(2), [PlainFlow("n0", "n1", 1.0)], "lv8")


def test_nothing_can_run_where_nothing_computes(command: Any, files: tuple[str, str]) -> None:
    code, _, err = command("run", "quickstart", "--topology", files[0], "--out", "never")
    assert code == 2
    assert "which has none" in err
    code, out, _ = command("topology", "check", files[0])
    assert code == 0
    assert "2 bare hosts" in out


@pytest.mark.parametrize(("nodes", "size_bytes"), [(1, 1000), (4, 1000), (5, 1003)])
def test_the_simulators_own_case_meets_the_closed_form(nodes: int, size_bytes: int) -> None:
    result = bench_simulator(nodes, size_bytes)
    part = -(-size_bytes // nodes)  # the largest part
    steps = 2 * (nodes - 1)
    assert result["elapsed_s"] == pytest.approx(steps * (50e-6 + part / 125e6), rel=1e-9)
    assert result["messages"] == steps * nodes


def test_bench_prints_what_it_measured_as_json(command: Any) -> None:
    code, out, _ = command("bench", "simulator", "--nodes", "8", "--bytes", "8000", "--json")
    assert code == 0
    assert {"elapsed_s", "wall_s", "messages", "peak_rss_mb"} <= json.loads(out).keys()
    code, _, err = command("bench", "simulator", "--nodes", "0", "--bytes", "-1")
    assert code == 2
    assert "--nodes: found 0" in err
    assert "--bytes: found -1" in err
