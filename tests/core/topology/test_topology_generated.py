"""Topologies by the name of a generator: the same as the generator makes, each mistake told once, and overrides."""

import cProfile
from pathlib import Path

import pytest

from simcluster.documents.reading import DocumentReading
from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.topology import chain, complete, load, loads, ring, star, torus, two_sites
from simcluster.topology.read.nodes import LinkEnd, read_node


@pytest.mark.parametrize(
    ("document", "made"),
    [
        ({"generator": "star", "workers": 5}, star(5)),
        ({"generator": "ring", "workers": 3, "bandwidth": "2 Gbps"}, ring(3, bandwidth="2 Gbps")),
        ({"generator": "chain", "workers": 2, "latency": "1 ms"}, chain(2, latency="1 ms")),
        ({"generator": "complete", "workers": 3, "duplex": "half"}, complete(3, duplex="half")),
        ({"generator": "torus", "rows": 2, "columns": 3}, torus(2, 3)),
        (
            {"generator": "two_sites", "workers_a": 2, "workers_b": 3, "wan_latency": "5 ms"},
            two_sites(2, 3, wan_latency="5 ms"),
        ),
        (
            {"generator": "star", "workers": 2, "device": {"flops": "1 TFLOP/s"}},
            star(2, device={"flops": "1 TFLOP/s"}),
        ),
    ],
    ids=lambda value: value["generator"] if isinstance(value, dict) else "",
)
def test_a_generator_named_in_a_document_makes_what_it_makes(document, made):
    topology = loads(document)
    assert topology == made
    assert loads(topology.document) == made, "its document has nodes and links, and reads back"


def test_a_file_may_name_one_and_say_what_it_is_called(tmp_path: Path):
    path = tmp_path / "cloud.yaml"
    path.write_text("name: cloud\ndescription: many\ngenerator: star\nworkers: 3\n")
    topology = load(path)
    assert (topology.name, topology.description, topology.workers) == ("cloud", "many", ["n0", "n1", "n2"])
    path.write_text("generator: star\nworkers: 3\n")
    assert load(path).name == "star-3"


def problems_of(document) -> list[str]:
    with pytest.raises(UsageError) as caught:
        loads(document)
    return [str(problem) for problem in caught.value.problems]


def test_every_setting_that_is_wrong_is_told_with_its_line(tmp_path: Path):
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "generator: star\nworkers: many\nbandwith: 1 Gbps\nbandwidth: 5\nlatency: 1 Gbps\nduplex: both\ndevice: 3\n"
    )
    with pytest.raises(UsageError) as caught:
        load(path)
    found = [str(problem) for problem in caught.value.problems]
    for line, words in {
        2: "workers: found 'many', expected a whole number",
        3: "bandwith: unknown key; did you mean 'bandwidth'?",
        4: "bandwidth: found 5, expected a bandwidth with its unit",
        5: "latency: found '1 Gbps', expected a time with its unit",
        6: "duplex: found 'both', expected full or half or free",
        7: "device: found 3, expected a preset's name, or the keys of a node",
    }.items():
        assert any(f"wrong.yaml:{line}:" in problem and words in problem for problem in found), (line, found)
    assert len(found) == 6


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"generator": "stra"}, "generator: found 'stra', expected the name of a generator: did you mean 'star'?"),
        ({"generator": 3}, "generator: found 3, expected the name of a generator: one of chain, complete, ring, star"),
        ({"generator": "star"}, "workers: found nothing, expected a whole number: the number of workers"),
        ({"generator": "star", "workers": True}, "workers: found true, expected a whole number"),
        ({"generator": "ring", "workers": 2}, "generator: found ring with 2 workers, expected at least 3"),
        (
            {"generator": "star", "workers": 900, "device": "x86-labtop"},
            "device: found 'x86-labtop'; did you mean 'x86-laptop'?",
        ),
        ({"generator": "star", "workers": 900, "device": {"flops": "fast"}}, "device.flops: found 'fast', expected a"),
    ],
)
def test_a_mistake_is_told_once_however_many_nodes_it_is_made_for(document, problem):
    found = problems_of(document)
    assert len(found) == 1
    assert problem in found[0]


def test_overrides_reach_the_settings_and_then_single_nodes():
    topology = load(
        {"generator": "star", "workers": 2},
        overrides={"workers": "4", "device": "raspberry-pi-5", "nodes.n3.device": "raspberry-pi-4", "name": "mixed"},
    )
    assert topology.name == "mixed"
    devices = [topology.nodes[name].device.name for name in topology.workers]
    assert devices == ["raspberry-pi-5"] * 3 + ["raspberry-pi-4"]
    with pytest.raises(UsageError, match="override worker"):
        load({"generator": "star", "workers": 2}, overrides={"worker": 4})


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("wrkers", "override wrkers: unknown key 'wrkers'; did you mean 'workers'?"),
        ("worker", "override worker: unknown key 'worker'; did you mean 'workers'?"),
        ("nods.n0.flops", "override nods.n0.flops: unknown key 'nods'; did you mean 'nodes'?"),
        (
            "rows",
            "rows (set by override rows): found a setting of torus, expected one of this generator: "
            "workers, bandwidth, latency, duplex, device",
        ),
    ],
)
def test_a_wrong_override_is_compared_with_the_settings_of_its_generator(key: str, problem: str):
    with pytest.raises(UsageError) as refused:
        load({"generator": "star", "workers": 2}, overrides={key: 4})
    assert [str(found) for found in refused.value.problems] == [problem]


def test_an_experiment_names_one_in_its_topology_and_sets_it_from_outside():
    source = {
        "topology": {"generator": "star", "workers": 2},
        "algorithm": "all_reduce_dp",
        "workload": "quadratic",
        "stop": {"steps": 1},
    }
    plan = read_experiment(source, {"topology.workers": 6, "topology.latency": "1 ms"})
    assert plan.topology == star(6, latency="1 ms")
    assert read_experiment(plan.document).topology == plan.topology


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the nodes that are read, in order."""
    found: list[str] = []

    def counting(reading: DocumentReading, name: str) -> LinkEnd:
        found.append(name)
        return read_node(reading, name)

    monkeypatch.setattr("simcluster.topology.read.nodes.read_node", counting)
    return found


def test_two_of_the_equal_workers_of_a_generated_cluster_are_read(read: list[str]) -> None:
    load({"generator": "ring", "workers": 50})
    # The first one is read ahead, for a device that is wrong is wrong everywhere; then a link with both its ends.
    assert read == ["n0", "n0", "n1"]


def test_each_kind_of_node_and_link_of_two_sites_is_read_once(read: list[str]) -> None:
    topology = load({"generator": "two_sites", "workers_a": 20, "workers_b": 30})
    assert sorted(set(read)) == ["n0", "n20", "sw0", "sw1"]
    assert topology == two_sites(20, 30)


def test_every_worker_of_a_generated_cluster_with_overrides_is_read_once(read: list[str]) -> None:
    load({"generator": "ring", "workers": 50}, overrides={"nodes.n7.send_overhead": "1 us"})
    assert read == ["n0", *(f"n{number}" for number in range(50))]


@pytest.mark.parametrize(
    "more",
    [
        {"launch": {"nproc_per_node": 2}},
        {"inbox": "1 MB"},
        {"routes": [["n0", "sw", "n2"]]},
        {"device": {"device": "x86-laptop", "nproc_per_node": 2}},
    ],
    ids=str,
)
def test_a_generated_cluster_whose_other_keys_concern_its_nodes_is_that_of_its_document(more) -> None:
    document = {"generator": "star", "workers": 3, **more}
    made = star(3, device=more.get("device", "x86-laptop")).document
    # Split into processes, the document is already that of the parts; else it is read with the other keys.
    others = {key: value for key, value in more.items() if key != "device"}
    assert load(document) == loads({**made, **others})


def test_the_document_of_a_generated_cluster_keeps_the_other_keys_and_reads_back() -> None:
    topology = load({"generator": "torus", "rows": 3, "columns": 4, "description": "a grid"})
    assert topology.document["description"] == "a grid"
    assert topology.document is topology.document, "made once"
    assert loads(topology.document) == topology


def test_the_work_of_reading_a_generated_cluster_rises_with_its_workers_alone() -> None:
    def calls(workers: int) -> int:
        profile = cProfile.Profile()
        with profile:
            load({"generator": "star", "workers": workers})
        return sum(entry.callcount for entry in profile.getstats())

    few, more, most = (calls(workers) for workers in (300, 600, 900))
    assert most - more < 1.1 * (more - few)
    assert (more - few) / 300 < 400, "calls for a worker and its link"
