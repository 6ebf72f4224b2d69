"""Sources of a topology: shipped files, documents, dicts, paths and presets."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from simcluster.documents.shipped import shipped_names
from simcluster.errors import UsageError
from simcluster.topology import load, loads
from simcluster.topology.presets.links import DEVICES, LINKS
from tests.core.topology.reading import TWO


@pytest.mark.parametrize("name", shipped_names("topologies"))
def test_the_document_of_every_shipped_topology_reads_back_to_an_equal_one(name: str) -> None:
    topology = load(name)
    assert topology.name == name
    again = loads(yaml.safe_dump(dict(topology.document), sort_keys=False))
    assert again == topology
    assert hash(again) == hash(topology)
    assert topology.description


def test_the_shipped_smolcluster_is_the_one_of_its_description() -> None:
    topology = load("smolcluster")
    assert topology.workers == ["mini1", "mini2", "mini3", "pi5", "pi4"]
    assert [hop.target for hop in topology.route("pi5", "pi4")] == ["mini1", "mini2", "mini3", "pi4"]
    assert topology.nodes["pi4"].address == "192.168.51.4"
    assert topology.route_latency_s("pi5", "pi4") == pytest.approx(600e-6, rel=1e-12)


def test_regions_of_the_shipped_halos_topology_talk_directly() -> None:
    # The latencies were estimated; a detour faster than the direct line would make the paper's numbers idle.
    topology = load("halos-4-regions")
    assert len(topology.workers) == 16
    regions = ("r1", "r2", "r3", "r4")
    assert all(len(topology.route(a, b)) == 1 for a in regions for b in regions if a != b)
    assert next(link for link in topology.links if link.name == "r2-r4").bandwidth_Bps == 0.117e9 / 8


def test_order_of_nodes_makes_topologies_differ() -> None:
    one = {
        "nodes": {name: {"device": "x86-laptop"} for name in "ab"},
        "links": [{"between": ["a", "b"], "type": "wan"}],
    }
    other = one | {"nodes": {name: {"device": "x86-laptop"} for name in "ba"}}
    assert loads(one) != loads(other)


def test_a_dict_is_read_and_left_alone() -> None:
    data = {
        "nodes": {"a": None, "b": {"device": "x86-laptop"}},
        "links": [{"between": ("a", "b"), "type": "wan"}],
    }
    before = copy.deepcopy(data)
    with pytest.raises(UsageError, match=r"^nodes\.a: found no device"):
        load(data)
    assert data == before


def test_a_path_gives_the_name_and_an_unknown_name_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(TWO)
    assert load(path).name == load(str(path)).name == "mine"
    with pytest.raises(UsageError, match="did you mean 'smolcluster'"):
        load("smolcluter")
    with pytest.raises(UsageError, match=r"no such file"):
        load("missing.yaml")
    with pytest.raises(UsageError, match="a folder"):
        load(tmp_path)


def test_presets_are_effective_numbers_and_each_has_a_source() -> None:
    for device in DEVICES.values():
        assert "estimate" in device.source or "measured" in device.source
        assert 1e10 < device.flops_per_s < 1e13
        assert "TFLOP/s" in str(device) or "GFLOP/s" in str(device)
    for link in LINKS.values():
        assert "estimate" in link.source or "measured" in link.source
        assert 0 < link.latency_s < 0.1
    # 1448 of each 1538 bytes on the wire are data.
    assert LINKS["ethernet-1g"].bandwidth_Bps == pytest.approx(125e6 * 1448 / 1538, rel=1e-3)
    assert LINKS["ethernet-10g"].bandwidth_Bps == pytest.approx(1.25e9 * 1448 / 1538, rel=1e-3)
    assert LINKS["wifi-6"].duplex == "half"
