"""Sums by place: sites and shares from the topology, for every algorithm that sums among all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import simcluster
from simcluster import Topology
from simcluster.algorithms.by_place import all_reduce_by, by_place
from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.lab.verify import verify

TWO: dict[str, Any] = {"generator": "two_sites", "workers_a": 3, "workers_b": 2, "device": {"flops": "1 PFLOP/s"}}
SLOW = pytest.mark.slow
SUMMING = ("all_reduce_dp", "local_sgd", "diloco", "streaming_diloco")
QUADRATIC: dict[str, Any] = {"name": "quadratic", "features": 60, "dtype": "float64", "batch_size": 4}


def document(name: str, topology: Any = TWO, steps: int = 6, **settings: Any) -> dict[str, Any]:
    short = {} if name == "all_reduce_dp" else {"interval": 3}
    algorithm = {"name": name, **short, **settings}
    return {"topology": topology, "algorithm": algorithm, "workload": QUADRATIC, "stop": {"steps": steps}}


def ran(folder: Path, name: str, topology: Any = TWO, steps: int = 6, faults: Any = (), **settings: Any) -> Any:
    source = document(name, topology, steps, **settings) | {"faults": list(faults)}
    return simcluster.run(source, out=folder, report=False)


def weights_of(run: Any) -> torch.Tensor:
    return torch.cat([weights.flatten() for weights in run.weights().values()])


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW if name != "local_sgd" else ()) for name in SUMMING])
def test_sums_inside_sites_first_are_the_same_sums_and_cross_the_slow_line_less(name: str, tmp_path: Path) -> None:
    ring, sites = (ran(tmp_path / kind, name, schedule=kind) for kind in ("ring", "hierarchical"))
    # Only the order of the additions differs: ((0 + 1) + 2) + (3 + 4), not around the ring.
    assert sites.summary["loss"] == pytest.approx(ring.summary["loss"], rel=1e-12)
    assert sites.summary["elapsed_s"] < 0.75 * ring.summary["elapsed_s"]


def test_a_step_between_two_sites_takes_the_closed_form(tmp_path: Path) -> None:
    m, M, b = 2, 8 * 6000, 125e6
    a1, a2 = 2e-4, 2e-4 + 20e-3  # two links of 100 us inside a site; 20 ms more between the sites
    two = Topology.two_sites(m, m, device={"flops": "1000 PFLOP/s"}, bandwidth="1 Gbps", latency="100 us")
    source = document("all_reduce_dp", two, 1, schedule="hierarchical")
    source["workload"] = QUADRATIC | {"features": 6000}
    run = simcluster.run(source, out=tmp_path / "run", report=False)
    # 2 (m-1) times half the vector inside a site, then half of it over 100 Mbps twice, both owners at once.
    expected = 2 * (m - 1) * (a1 + M / m / b) + 2 * (a2 + M / 2 / 12.5e6)
    assert run.summary["elapsed_s"] == pytest.approx(expected, rel=3e-4)  # each message has a header of some 60 bytes
    # 2 (p-1) vectors in all: 2 (m-1) inside each of two sites, and 2 between them.
    headers = run.summary["bytes_sent"] - 2 * (2 * m - 1) * M
    assert 0 < headers < 100 * run.summary["messages_sent"]


def test_a_rank_with_a_slow_link_sums_less_for_others(tmp_path: Path) -> None:
    star = Topology.star(4, bandwidth="1 Gbps").document
    star["links"][0]["bandwidth"] = "500 Mbps"
    plan = read_experiment(document("all_reduce_dp", star, schedule="bandwidth_aware"))
    # T = (p + p - 2) / (B_1 + ... + B_p) = 6/3.5 and w = (T B - 1)/(p - 2) = 0.357; the slow one's is below 0, so
    # three ranks share: a third each.
    assert by_place(plan.algorithm_settings, plan.topology, range(4), 480)["shares"] == pytest.approx((0, *[1 / 3] * 3))
    # Without a fast rank, two fast ranks and the slow one: (T - 1, T - 1, T/2 - 1), T = 4/2.5: a half each.
    assert by_place(plan.algorithm_settings, plan.topology, [0, 1, 3], 480)["shares"] == pytest.approx((0, 0.5, 0.5))
    given, ring = (
        ran(tmp_path / str(number), "all_reduce_dp", star, **settings)
        for number, settings in enumerate([{"schedule": "bandwidth_aware", "shares": [0, 1, 2, 1]}, {}])
    )
    assert given.summary["loss"] == pytest.approx(ring.summary["loss"], rel=1e-12)
    # Shares of 0, 15, 30 and 15 numbers, 16 or 15 pieces each, to and from all others; a ring sends 24 chunks.
    assert given.summary["messages_sent"] == 6 * 2 * 3 * (15 + 16 + 15)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW if name != "diloco" else ()) for name in SUMMING])
def test_after_a_loss_the_sites_are_those_of_the_living(name: str, tmp_path: Path) -> None:
    crash = {"kind": "crash", "node": "n3", "at": "50 ms"}
    ring, sites = (
        ran(tmp_path / kind, name, steps=24, faults=[crash], schedule=kind) for kind in ("ring", "hierarchical")
    )
    for run in (ring, sites):
        assert [row["members"] for row in run.summary["regroups"]] == [["n0", "n1", "n2", "n4"]]
    digests = {node["weights_sha256"] for name, node in sites.summary["nodes"].items() if name != "n3"}
    assert len(digests) == 1


def test_a_site_that_is_lost_is_left_out() -> None:
    plan = read_experiment(document("diloco", schedule="hierarchical", sites=[["n4", "n3"], ["n0", "n1", "n2"]]))
    settings, cluster = plan.algorithm_settings, plan.topology
    assert by_place(settings, cluster, range(5), 480)["sites"] == ((4, 3), (0, 1, 2))
    assert by_place(settings, cluster, [0, 2, 3], 480)["sites"] == ((2,), (0, 1))
    assert by_place(settings, cluster, [1, 2], 480)["sites"] == ((0, 1),)


@pytest.mark.parametrize(
    ("topology", "settings", "error"),
    [
        (TWO, {"sites": [["n0", "n1"], ["n2", "m3"]]}, "sites: found 'm3'; did you mean 'n3'"),
        (TWO, {"sites": [["n0", "n1"], ["n2", 7]]}, "sites: found rank 7, expected ranks from 0 to 4"),
        (TWO, {"sites": [[0, 1, 1], [2, 4]]}, "sites: found 1 twice"),
        (
            TWO,
            {"sites": [[0, 1], [2, 4], []]},
            "found n3 at no site.*found an empty site, expected each node at exactly",
        ),
        (TWO, {"sites": "topolgy"}, "sites: found 'topolgy'"),
        (TWO, {"schedule": "ring", "sites": [[0, 1], [2, 3, 4]]}, "expected schedule: hierarchical with it, not ring"),
        (TWO, {"compression": "int8"}, "compression: found int8, expected none or power_sgd with schedule: hier"),
        (TWO, {"schedule": "bandwidth_aware", "shares": [1, 2]}, "shares: found .*, expected 5 numbers"),
        (TWO, {"schedule": "bandwidth_aware", "shares": [float("inf"), 0, 0, 1, 1]}, "with a finite sum above 0"),
        (TWO, {"schedule": "bandwidth_aware", "shares": [0, 0, 0, 1e308, 1e308]}, "with a finite sum above 0"),
        (TWO, {"shares": [1, 1, 1, 1, 1]}, "expected schedule: bandwidth_aware with it, not hierarchical"),
        ({"generator": "star", "workers": 4}, {}, "all 4 nodes are at one site, expected at least two sites"),
    ],
)
def test_what_does_not_fit_the_topology_is_refused_before_a_run(topology: Any, settings: Any, error: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){error}"):
        read_experiment(document("diloco", topology, **({"schedule": "hierarchical"} | settings)))


def test_without_an_experiment_there_is_no_topology_to_ask() -> None:
    with pytest.raises(UsageError, match="sites: found topology, expected numbers of ranks"):
        all_reduce_by("hierarchical", "topology", "topology")


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"schedule": "hierarchical"}, {"schedule": "bandwidth_aware", "shares": [1, 2, 1]}]
)
def test_both_backends_add_in_the_same_order(settings: dict[str, Any]) -> None:
    found = verify("diloco", settings=settings, nodes=[3], only=["backends", "bytes"])
    assert found["simulator = sockets"].verdict == "holds", found.table()
    assert found.ok, found.table()
