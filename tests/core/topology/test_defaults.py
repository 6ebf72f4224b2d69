"""A device, a bandwidth and a latency for all that lack them: for every source, and for nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx
import pytest

from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.topology import load

PI = {"device": "raspberry-pi-5", "bandwidth": "1 Gbps", "latency": "1 ms"}
YAML = """\
nodes:
  a: {site: here}
  b: {device: mac-mini-m4}
  c:
  s: {kind: switch}
  h: {kind: host}
links:
  - {between: [a, s], latency: 5 ms}
  - {between: [b, s], type: ethernet-100m}
  - {between: [c, s]}
  - {between: [h, s]}
"""


@pytest.mark.parametrize("as_overrides", [False, True])
def test_defaults_fill_what_a_file_lacks(tmp_path: Path, as_overrides: bool) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(YAML)
    defaults: dict[str, Any] = (
        {"overrides": {f"defaults.{key}": one for key, one in PI.items()}} if as_overrides else PI
    )
    found = load(path, **defaults)
    devices = {name: node.device.name if node.device else node.kind for name, node in found.nodes.items()}
    assert devices == {"a": "raspberry-pi-5", "b": "mac-mini-m4", "c": "raspberry-pi-5", "s": "switch", "h": "host"}
    assert [link.numbers[:2] for link in found.links] == [
        ("1 Gbps", "5 ms"),
        ("94.1 Mbps", "200 us"),
        ("1 Gbps", "1 ms"),
        ("1 Gbps", "1 ms"),
    ]


def test_a_generator_takes_defaults_for_settings_that_it_does_not_give() -> None:
    star = load({"generator": "star", "workers": 2, "latency": "7 ms"}, **PI)
    assert (star.device("n0").name, star.links[0].numbers[:2]) == ("raspberry-pi-5", ("1 Gbps", "7 ms"))


def test_a_graph_with_foreign_attributes_takes_them_too() -> None:
    graph: networkx.Graph[str] = networkx.Graph()
    graph.add_node("a", pos=(0, 1))
    graph.add_edge("a", "b", weight=3)
    assert load(graph, **PI).device("a").name == "raspberry-pi-5"
    overrides = {f"topology.defaults.{key}": one for key, one in PI.items()}
    cluster = read_experiment("quickstart", overrides, topology=graph).topology
    assert cluster.links[0].numbers == ("1 Gbps", "1 ms", "full")


def test_wrong_defaults_are_refused_by_their_names() -> None:
    with pytest.raises(UsageError) as error:
        load({"nodes": {"a": {}}}, device="raspberry", bandwidth="5", latency="fast")
    assert str(error.value).splitlines() == [
        "device: found 'raspberry'; did you mean 'raspberry-pi-4' or 'raspberry-pi-5'?",
        "bandwidth: found 5 without a unit, expected a bandwidth with its unit, such as 1 Gbps or 125 MB/s",
        "latency: found 'fast', expected a time with its unit, such as 150 us",
    ]
    with pytest.raises(
        UsageError, match=r"override defaults: unknown key 'speed'; expected one of bandwidth, device, latency"
    ):
        load({"nodes": {"a": {}}}, overrides={"defaults.speed": 1})
