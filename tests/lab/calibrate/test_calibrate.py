"""A cluster that is measured in the simulator is found to be what it is; on sockets, something is measured at all."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from simcluster_backends.sim import run_cluster
from simcluster_backends.sim.cluster import SimCluster

from simcluster.compute.matrix_product import MATRIX_PRODUCT, PRODUCT_FLOPS
from simcluster.errors import UsageError
from simcluster.experiment import read_experiment
from simcluster.job import ClusterJob
from simcluster.lab.calibrate import Calibration, calibrate
from simcluster.lab.calibrate.rehearsal import RING, rehearse
from simcluster.lab.calibrate.run import PROGRAM, evaluate
from simcluster.lab.calibrate.write import calibrated_document, calibrated_text
from simcluster.process.intra_op import usable_cores
from simcluster.topology import load
from simcluster.transport import Transport
from tests.support.clusters import star

DAY = date(2026, 11, 21)
QUADRATIC = {"name": "quadratic", "features": 4}


def document(*links: dict[str, Any], nodes: str = "abc", **node: Any) -> dict[str, Any]:
    return {"name": "lab", "nodes": {name: {"flops": "1 MFLOP/s", **node} for name in nodes}, "links": list(links)}


def link(a: str, b: str, bandwidth: str = "8 Mbps", latency: str = "5 ms", **keys: Any) -> dict[str, Any]:
    return {"between": [a, b], "bandwidth": bandwidth, "latency": latency, **keys}


CHAIN = document(link("a", "b", "80 Mbps", "1 ms", ack_share=0.1), link("b", "c", "8 Mbps", "2 ms", duplex="half"))


def simulated(topology: dict[str, Any], **options: Any) -> Calibration:
    return calibrate(topology, backend="sim", workload=QUADRATIC, **options)


@pytest.mark.slow
def test_a_simulated_cluster_is_measured_as_it_is() -> None:
    found = load(calibrated_document(simulated(CHAIN)))
    fast, slow = found.links
    assert (fast.bandwidth_Bps, fast.latency_s, fast.duplex, fast.ack_share) == pytest.approx((1e7, 1e-3, "full", 0.1))
    assert (slow.bandwidth_Bps, slow.latency_s, slow.duplex, slow.ack_share) == pytest.approx((1e6, 2e-3, "half", 0.0))


@pytest.mark.slow
def test_rehearsed_steps_take_what_the_numbers_that_were_measured_predict() -> None:
    # Unlike nodes: in a star, what one does while another computes depends on the order of the pieces of a step.
    given = document(link("a", "b", "80 Mbps"), link("b", "c", "8 Mbps"))
    for name, rate in (("a", "10 kFLOP/s"), ("b", "1 kFLOP/s"), ("c", "3 kFLOP/s")):
        given["nodes"][name]["flops"] = rate
    for misfit in calibrated_document(simulated(given)).get("misfit", [1.0]):
        assert misfit == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
def test_devices_get_the_time_of_each_kind_of_work_and_lose_their_straggler() -> None:
    slow = {"kind": "constant", "factor": 3}
    given = document(link("a", "b"), nodes="ab", straggler=slow)
    found = calibrated_document(simulated(given))
    for name in "ab":
        assert set(found["nodes"][name]["profile"]) == {"quadratic/gradient", "quadratic/apply"}
        assert "straggler" not in found["nodes"][name]
    replica = read_experiment({"topology": given, "algorithm": "edp", "workload": QUADRATIC}).workload.replica(
        0, 2, 0, 1
    )
    cost = replica.gradient_cost(next(replica.batches()))
    device = load(found).nodes["a"].device
    assert device is not None
    assert device.profile is not None
    # three times what 1 MFLOP/s take for it
    assert device.profile.seconds(cost.kind, cost.flops) == pytest.approx(3 * cost.flops / 1e6, rel=1e-3)
    assert given["nodes"]["a"]["straggler"] == slow


@pytest.mark.slow
def test_other_kinds_of_work_that_were_measured_before_stay() -> None:
    given = document(link("a", "b"), nodes="ab", profile={"gpt/gradient": "1 s"})
    profile = calibrated_document(simulated(given))["nodes"]["a"]["profile"]
    assert profile["gpt/gradient"] == "1 s"
    assert len(profile) == 3


@pytest.mark.slow
def test_what_a_message_takes_of_its_hosts_is_told_from_what_it_takes_of_the_link() -> None:
    given = document(link("a", "b", latency="5 ms"), nodes="ab", send_overhead="1 ms", recv_overhead="2 ms")
    found = load(calibrated_document(simulated(given)))
    # seen from a and b: 1 ms a send, a message every 2 ms, 8 ms one way
    assert [found.nodes[name].send_overhead_s for name in "ab"] == pytest.approx([1e-3, 1e-3])
    assert [found.nodes[name].recv_overhead_s for name in "ab"] == pytest.approx([2e-3, 2e-3])
    assert found.links[0].latency_s == pytest.approx(5e-3)


@pytest.mark.slow
def test_what_a_node_sends_ahead_is_found_as_far_as_it_was_filled() -> None:
    given = document(link("a", "b"), nodes="ab", send_buffer="1 GB")
    found = load(calibrated_document(simulated(given)))
    # 8 Mbit/s and a round of at most 0.25 s: messages of 64 KiB, of which six were sent, all ahead
    assert [found.nodes[name].send_buffer_bytes for name in "ab"] == [390_000, 390_000]
    assert all(node.send_buffer_bytes == 0 for node in load(calibrated_document(simulated(CHAIN))).nodes.values())


def test_a_ring_is_rehearsed_as_an_all_reduce_goes_round_it() -> None:
    # Each of 3 nodes sends 2 x (3 - 1) shares of 1 MB at 1 MB/s: 4 s. One exchange of all 3 MB would take 3 s.
    cluster = SimCluster(star(3, 1e6, 0.0))

    async def body(node: Transport) -> float:
        async def nothing(*_: object) -> None:
            pass

        sizes = dict.fromkeys(node.peers, 3_000_000)
        return (await rehearse(node, asyncio.get_running_loop().time, RING, sizes, nothing, nothing))[1]

    assert cluster.run([body] * 3) == pytest.approx([4.0] * 3, rel=1e-3)


def test_a_medium_that_was_taken_for_full_duplex_is_found_out() -> None:
    really = load(document(link("a", "b", duplex="half"), nodes="ab"))
    plan = read_experiment({"topology": really.document, "algorithm": "edp", "workload": QUADRATIC})
    config = json.dumps({"experiment": plan.document, "work": False})
    record = run_cluster(ClusterJob(really.workers, config, program=PROGRAM, topology=really))
    assert record.error is None
    taken_for = load(document(link("a", "b", "1 Gbps", "1 us"), nodes="ab"))
    (found,) = load(calibrated_document(evaluate(taken_for, record))).links
    assert (found.duplex, found.bandwidth_Bps, found.latency_s) == ("half", 1e6, 5e-3)


@pytest.mark.slow
def test_a_link_that_no_way_is_slowed_down_by_keeps_its_bandwidth_if_that_can_be() -> None:
    trunk = document(link("a", "s"), link("s", "t", "80 Mbps"), link("t", "b"), nodes="ab")
    trunk["nodes"] |= {"s": {"kind": "switch"}, "t": {"kind": "switch"}}
    found = simulated(trunk)
    # all three are alike to whoever only sees a and b; 1 MB/s is what can be said of each
    assert load(calibrated_document(found)).links[0].bandwidth_Bps == pytest.approx(1e6)
    faster = document(link("a", "b"), link("b", "c", "80 Mbps"), link("c", "d"), nodes="abcd")
    middle = load(calibrated_document(simulated(faster))).links[1]
    assert middle.bandwidth_Bps == pytest.approx(1e7)


@pytest.mark.slow
def test_the_file_has_the_day_the_spread_and_reads_as_a_topology() -> None:
    calibration = simulated(CHAIN)
    text = calibrated_text(calibration, DAY)
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert comments[0].startswith("# Measured on 2026-11-21 ")
    assert any("way a to c: 3 ms (3 ms to 3 ms)" in line for line in comments)
    assert any("link b-c: 2 ms, 8 Mbps (8 Mbps to 8 Mbps)" in line for line in comments)
    assert any("node a: quadratic/gradient of " in line for line in comments)
    assert load(yaml.safe_load(text)) == load(calibrated_document(calibration))


@pytest.mark.slow
def test_without_a_workload_devices_are_left_alone() -> None:
    found = calibrated_document(calibrate(CHAIN, backend="sim", workload=None))
    assert found["nodes"] == CHAIN["nodes"]


def test_one_node_alone_has_a_device_but_no_links() -> None:
    alone = document(nodes="a")
    assert set(calibrated_document(simulated(alone))["nodes"]["a"]["profile"]) == {
        "quadratic/gradient",
        "quadratic/apply",
    }
    with pytest.raises(UsageError, match="two, or a workload"):
        calibrate(alone, backend="sim", workload=None)


@pytest.mark.slow
def test_on_sockets_every_way_and_device_gets_samples(tmp_path: Path) -> None:
    found = calibrate(document(link("a", "b"), link("b", "c")), workload=QUADRATIC)
    assert [(way.a, way.b) for way in found.ways] == [(0, 1), (0, 2), (1, 2)]
    assert all(way.bandwidth_Bps.value > 0 and way.startup_s.value > 0 for way in found.ways)
    for node in found.nodes.values():
        assert set(node.work) == {"quadratic/gradient", "quadratic/apply"}
        assert 0 < node.product[MATRIX_PRODUCT][PRODUCT_FLOPS].value < 1
        assert node.send_overhead_s is not None
        assert node.send_overhead_s.value > 0
    measured = load(calibrated_document(found))
    device = measured.nodes["a"].device
    assert device is not None
    assert device.profile is not None
    assert device.profile.seconds(MATRIX_PRODUCT, PRODUCT_FLOPS) == pytest.approx(
        found.nodes["a"].product[MATRIX_PRODUCT][PRODUCT_FLOPS].value, rel=1e-3
    )
    assert all(link.latency_s != 5e-3 for link in measured.links), "measured, not taken from the file"
    assert {name: machine.cores for name, machine in measured.machines.items()} == {"this-machine": usable_cores()}
    assert measured.is_one_machine


@pytest.mark.slow
def test_a_latency_that_is_what_rounding_leaves_of_nothing_is_written_as_none() -> None:
    found = simulated(document(link("a", "b"), nodes="ab"))
    left = replace(found, links={0: replace(found.links[0], latency_s=8.7e-19)})
    assert calibrated_document(left)["links"][0]["latency"] == "0 s"


@pytest.mark.slow
def test_a_round_that_fits_an_absurd_rate_leaves_a_file_that_reads() -> None:
    found = simulated(document(link("a", "b"), nodes="ab"))
    rate = found.links[0].bandwidth_Bps
    slower = replace(found.links[0], bandwidth_Bps=replace(rate, value=rate.value / 10_000))
    written = calibrated_document(replace(found, links={0: slower}))
    assert set(written["links"][0]["spread"]["bandwidth"]) == {1000}, "10,000 times the median is no rate of a link"
    assert load(written).links[0].bandwidth_Bps == pytest.approx(rate.value / 10_000)
