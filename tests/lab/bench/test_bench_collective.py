"""`simcluster bench collective` times any operation on any topology, and says what is wrong with a request."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from typer.testing import CliRunner

from simcluster.cli.app import app
from simcluster.collectives import SCHEDULES
from simcluster.errors import UsageError
from simcluster.lab.bench.collective import bench_collective
from simcluster.topology import Topology, load, loads, star, two_sites

M = 840_000


def uneven_star(*rates: float) -> Topology:
    nodes: dict[str, Any] = {f"n{i}": {"device": "x86-laptop"} for i in range(len(rates))} | {"sw": {"kind": "switch"}}
    links = [
        {"between": [f"n{i}", "sw"], "bandwidth": f"{rate} MB/s", "latency": "10 us"} for i, rate in enumerate(rates)
    ]
    return loads({"name": "uneven", "nodes": nodes, "links": links})


def two_switches(order: str) -> Topology:
    """Eight hosts of 1 MB/s on two switches, as *order* says, and half of that between them."""
    nodes: dict[str, Any] = {f"n{i}": {"device": "x86-laptop"} for i in range(8)}
    nodes |= {f"s{i}": {"kind": "switch"} for i in range(2)}
    links = [
        {"between": [f"n{i}", f"s{switch}"], "bandwidth": "1 MB/s", "latency": "0 s"} for i, switch in enumerate(order)
    ]
    return loads(
        {
            "name": "two",
            "nodes": nodes,
            "links": [*links, {"between": ["s0", "s1"], "bandwidth": "500 kB/s", "latency": "0 s"}],
        }
    )


def elapsed_s(schedule: str, topology: Topology, op: str = "all_reduce", **given: Any) -> float:
    return float(bench_collective(op, schedule, topology, M, given)["elapsed_s"])


@pytest.mark.parametrize("op", sorted(SCHEDULES))
def test_every_schedule_runs_on_every_shipped_topology(op: str) -> None:
    for name in ("smolcluster", "two-sites-wan", "thunderbolt-mesh-4"):
        topology = load(name)
        for schedule in SCHEDULES[op]:
            result = bench_collective(op, schedule, topology, 1000, {})
            assert result["elapsed_s"] > 0
            assert result["messages"] >= len(topology.workers) - 1
            assert (result["bytes_sent"] > 0) == (op != "barrier")


def test_what_is_printed_is_the_formula() -> None:
    cluster = star(5, bandwidth="1 MB/s", latency="1 ms")
    result = bench_collective("all-reduce", "ring", cluster, M, {})
    # 2 (p-1) rounds of M/p bytes, 2 ms each way: 8 (0.002 + 0.168)
    assert result["elapsed_s"] == pytest.approx(8 * (0.002 + 0.168), rel=1e-9)
    assert (result["messages"], result["bytes_sent"]) == (40, 8 * M)
    assert 40 * 41 < result["header_bytes"] < 40 * 100


@pytest.mark.parametrize("order", ["00001111", "01010101"])
def test_near_first_is_two_and_a_half_times_as_fast_over_two_switches_whatever_the_ranks(order: str) -> None:
    topology = two_switches(order)
    near, far = (elapsed_s("halving-doubling", topology, order=word) for word in ("near-first", "far_first"))
    assert (near, far) == pytest.approx((3.5 * M / 1e6, 8.75 * M / 1e6), rel=1e-9)
    near, far = (elapsed_s("ring", topology, order=word) for word in ("near-first", "far-first"))
    # near: one flow over the trunk each way, M/8 at half a MB/s; far: four
    assert (near, far) == pytest.approx((14 * M / 8 / 5e5, 14 * M / 8 / 1.25e5), rel=1e-9)


def test_an_order_of_ones_own_is_taken_by_rank_or_name() -> None:
    topology = two_switches("01010101")
    by_rank = elapsed_s("ring", topology, order=[0, 2, 4, 6, 1, 3, 5, 7])
    by_name = elapsed_s("ring", topology, order="n0,n2,n4,n6,n1,n3,n5,n7")
    assert by_rank == by_name == elapsed_s("ring", topology, order="near-first") < elapsed_s("ring", topology)


def test_first_and_pieces_and_root_change_something() -> None:
    topology = two_switches("00001111")
    assert elapsed_s("halving-doubling", topology, first="far") > elapsed_s("halving-doubling", topology)
    uneven = uneven_star(1.0, 1.0, 1.0, 0.1)
    assert elapsed_s("bandwidth-aware", uneven, pieces=1) > elapsed_s("bandwidth-aware", uneven, pieces=32)
    assert elapsed_s("naive", uneven, "broadcast", root=3) > elapsed_s("naive", uneven, "broadcast", root=0)


def test_where_shares_cannot_help_bandwidth_aware_is_the_ring() -> None:
    for topology in (star(8), two_sites(3, 3), uneven_star(1, 0.5)):
        aware, ring = (bench_collective("all_reduce", name, topology, M, {}) for name in ("bandwidth_aware", "ring"))
        assert (aware["elapsed_s"], aware["bytes_sent"]) == (ring["elapsed_s"], ring["bytes_sent"])


def test_on_networks_of_all_kinds_shares_by_bandwidth_lose_nothing_and_mostly_gain() -> None:
    draw, gains = random.Random(1), 0
    for _ in range(20):
        workers, switches = draw.randint(3, 8), draw.randint(1, 3)
        nodes: dict[str, Any] = {f"n{i}": {"device": "x86-laptop"} for i in range(workers)}
        nodes |= {f"s{i}": {"kind": "switch"} for i in range(switches)}
        ends = [(f"n{i}", f"s{draw.randrange(switches)}") for i in range(workers)]
        ends += [(f"s{i}", f"s{i + 1}") for i in range(switches - 1)]
        links = [
            {
                "between": list(pair),
                "bandwidth": f"{draw.choice([1, 2, 5, 10, 100])} MB/s",
                "latency": f"{draw.choice([0, 10, 1000])} us",
                "duplex": draw.choice(["full", "full", "half"]),
            }
            for pair in ends
        ]
        topology = loads({"name": "drawn", "nodes": nodes, "links": links})
        aware_s, ring_s = elapsed_s("bandwidth-aware", topology), elapsed_s("ring", topology)
        assert aware_s <= 1.001 * ring_s
        gains += aware_s < 0.95 * ring_s
    assert gains >= 12


def test_by_site_less_crosses_the_slow_link() -> None:
    topology = two_sites(4, 4)
    assert elapsed_s("hierarchical", topology) < 0.9 * min(elapsed_s(other, topology) for other in ("ring", "direct"))
    assert bench_collective("all_reduce", "hierarchical", topology, M, {})["sites"] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(UsageError) as error:
        bench_collective("all_reduce", "ring", star(3), -1, {"ordr": 1, "order": "n0,n1", "pieces": 3})
    said = [str(problem) for problem in error.value.problems]
    assert said == [
        "--bytes: found -1, expected at least 0",
        "overrides ordr: unknown setting 'ordr'; did you mean 'order'?",
        "overrides pieces: unknown setting 'pieces'; expected one of order",
        "overrides order: found 'n0,n1', expected ranks, near-first, far-first, or a list of all ranks or names",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--op", "allreduce", "--schedule", "ring"], "op: found 'allreduce', expected one of all_gather"),
        (["--op", "gather", "--schedule", "ring"], "found 'ring' of gather, expected one of binomial, naive"),
        (["--op", "broadcast", "--schedule", "naive", "--set", "root=9"], "a whole number from 0 to 7"),
    ],
)
def test_a_wrong_request_is_exit_code_2(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CliRunner().invoke(
            app, ["bench", "collective", "--topology", "star-8-gigabit", *arguments], catch_exceptions=False
        )


def test_the_command_prints_json_and_words() -> None:
    arguments = ["bench", "collective", "--op", "all-reduce", "--schedule", "rabenseifner"]
    arguments += ["--topology", "star-8-gigabit", "--bytes", "1000000", "--set", "order=near-first"]
    result = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert (result["op"], result["schedule"], result["nodes"]) == ("all_reduce", "halving_doubling", 8)
    assert result["bytes_sent"] == 14_000_000
    words = CliRunner().invoke(app, arguments).output
    assert "48 messages with 14,000,000 bytes of tensors" in words
