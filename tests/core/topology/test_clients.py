"""Clients with the speeds that FedScale publishes; a pickle is never read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simcluster.errors import UsageError
from simcluster.topology import Topology, load, loads

SPEEDS = {str(number): {"computation": 100.0 * number, "communication": 5000.5} for number in (1, 2, 3)}
CSV = "client,communication,computation\n" + "".join(f"{n},5000.5,{100.0 * n}\n" for n in (1, 2, 3))
TEXT = """\
nodes: {server: {device: raspberry-pi-5}, sw: {kind: switch}}
links: [{between: [server, sw], bandwidth: 1 Gbps, latency: 1 ms}]
clients: {file: speeds, count: 2, work_per_sample: 300 MFLOP, to: sw, latency: 20 ms}
"""


def read(folder: Path, content: str | bytes, **overrides: object) -> Topology:
    (folder / "speeds").write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "t.yaml").write_text(TEXT)
    return load(folder / "t.yaml", overrides={key.replace("__", "."): value for key, value in overrides.items()})


@pytest.mark.parametrize("content", [json.dumps(SPEEDS), json.dumps(list(SPEEDS.values())), CSV])
def test_each_client_has_its_speed_and_its_link(content: str, tmp_path: Path) -> None:
    topology = read(tmp_path, content)
    assert topology.workers == ["server", "client0", "client1"]
    # 300 MFLOP per sample in 100 ms, and in 200 ms
    assert [topology.device(name).flops_per_s for name in topology.workers[1:]] == [3e9, 1.5e9]
    assert [(link.name, link.bandwidth_Bps, link.latency_s) for link in topology.links[1:]] == [
        ("client0-sw", 5000.5e3 / 8, 0.02),
        ("client1-sw", 5000.5e3 / 8, 0.02),
    ]
    assert loads(topology.document) == topology, "the document needs no file"


def test_overrides_reach_the_block_and_every_client_that_it_makes(tmp_path: Path) -> None:
    changed = {"clients__count": 3, "nodes__*__compute": "auto", "links__client2-sw__latency": "1 s"}
    topology = read(tmp_path, CSV, **changed)
    assert topology.workers[3] == "client2"
    assert {topology.nodes[name].compute for name in topology.workers} == {"auto"}
    assert topology.links[3].latency_s == 1.0


PICKLE = b"\x80\x04cbuiltins\nexit\n(tR."  # it would end the process


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (PICKLE, "found a pickle, which can run any code, expected a CSV file, written where you trust"),
        (CSV.replace("200.0", "-1"), "speeds:3: computation: found '-1', expected a number above 0"),
        (CSV.replace("200.0", "nan"), "speeds:3: computation: found 'nan'"),
        (CSV.replace("200.0", "1e-310"), "found '1e-310', expected a number above 0, from 1e-18 to 1e+30"),
        ('[{"computation": 1, "communication": true}]', "[0].communication: found True, expected a number above 0"),
        ("[" * 10**5, "clients.file: found no JSON"),
        (CSV.replace("1,", "x" * 200_000 + ",", 1), "clients.file: found no CSV: field larger than field limit"),
        ("a,b\n1,2\n", "clients.file: found 'a,b', expected computation and communication"),
        ("", "clients.file: found ''"),
        (CSV.partition("2,")[0], "clients.count: found 2, expected at most 1"),
    ],
)
def test_a_wrong_file_is_one_problem(content: str | bytes, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        read(tmp_path, content)
    assert len(error.value.problems) == 1, error.value
    assert problem in str(error.value)
