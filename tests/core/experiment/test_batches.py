"""`workload.batch_size` by node: a mapping, or a total shared by the devices' speed; what is neither is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.experiment.node_part import can_regroup
from simcluster.experiment.read.read import read_experiment
from simcluster.experiment.run import run
from tests.support.clusters import uneven_star


def document(batch_size: Any, algorithm: Any = "sync_ps", **changes: Any) -> dict[str, Any]:
    """Workers n0, n1, n2 of 4, 3 and 1 GFLOP/s around a switch."""
    return {
        "topology": uneven_star("4 GFLOP/s", "3 GFLOP/s", "1 GFLOP/s", latency="100 us"),
        "algorithm": algorithm,
        "workload": {"name": "mnist_mlp", "hidden": 12, "batch_size": batch_size},
        "stop": {"steps": 4},
        **changes,
    }


@pytest.mark.parametrize("numerics", ["real", "none"])
def test_a_total_is_shared_by_speed_and_written_by_name(numerics: str) -> None:
    found = read_experiment(document({"total": 80, "by": "device"}, numerics=numerics))
    # 80 in parts of 4, 3 and 1.
    assert found.workload.batch_sizes == (40, 30, 10)
    assert found.document["workload"]["batch_size"] == {"n0": 40, "n1": 30, "n2": 10}
    assert read_experiment(found.document).workload.batch_sizes == (40, 30, 10)


def test_a_measured_or_straggling_device_counts_as_it_is() -> None:
    source = document({"total": 80, "by": "device"})
    source["topology"]["nodes"]["n0"]["straggler"] = {"kind": "constant", "factor": 4}
    source["topology"]["nodes"]["n1"]["flops"] = "1 GFLOP/s"
    # Rates 1, 1 and 1.
    assert read_experiment(source).workload.batch_sizes == (27, 27, 26)


def test_a_mapping_may_be_in_any_order() -> None:
    found = read_experiment(document({"n2": 1, "n0": 8, "n1": 3}))
    assert found.workload.batch_sizes == (8, 3, 1)


@pytest.mark.parametrize(
    ("batch_size", "told"),
    [
        ({"n0": 8, "n1": 3, "n7": 1}, r"workload.batch_size.n7: unknown node; did you mean 'n2'\?"),
        ({"n0": 8, "n1": 3}, "workload.batch_size: found none for n2, expected a size for every node"),
        ({"n0": 8, "n1": 3, "n2": 0}, "workload.batch_size.n2: found 0, expected a whole number of at least 1 sample"),
        ({"n0": 8, "n1": 3, "n2": True}, "workload.batch_size.n2: found true"),
        ({"n0": 8, "n1": 3, "n2": 1.5}, r"workload.batch_size.n2: found 1.5"),
        (
            {"total": 2, "by": "device"},
            "workload.batch_size.total: found 2, expected a whole number of at least 3, one",
        ),
        ({"by": "device"}, "workload.batch_size: found no total, expected a whole number of at least 3"),
        ({"total": 80, "by": "rank"}, "workload.batch_size.by: found 'rank', expected device"),
        ({"total": 80, "by": "device", "least": 1}, "workload.batch_size.least: unknown key"),
        ({"n0": 10**7, "n1": 1, "n2": 1}, "found 10000002 samples on 3 ranks together, expected at most 4000"),
    ],
)
def test_sizes_that_are_none_are_refused_before_anything_starts(batch_size: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_experiment(document(batch_size))


def test_an_algorithm_that_does_not_weigh_is_refused_with_the_reason() -> None:
    sizes, own = {"n0": 8, "n1": 3, "n2": 1}, f"{__file__}:unweighed"
    with pytest.raises(UsageError, match=r"found 1 to 8 samples per node.*its averages do not weigh by samples"):
        read_experiment(document(sizes, {"path": own}))
    assert read_experiment(document({"n0": 4, "n1": 4, "n2": 4}, {"path": own})).workload.batch_sizes == (4, 4, 4)
    for name in ("sync_ps", "k_sync", "edp", "ssp", "k_async", "softsync", "fedbuff", "async_diloco", "easgd"):
        with pytest.raises(UsageError, match="since a server that only serves draws none; or server_trains: true"):
            read_experiment(document(sizes, {"name": name, "server_trains": False}))


async def unweighed(node: Any, replica: Any) -> None:
    """An algorithm without facts."""


def test_real_nodes_with_unequal_batches_end_with_the_simulators_bits(tmp_path: Path) -> None:
    source = document({"total": 24, "by": "device"})
    sim, sockets = (
        run(source, backend=backend, out=tmp_path / backend, report=False).summary for backend in ("sim", "sockets")
    )
    assert sockets["weights_sha256"] == sim["weights_sha256"]
    # 4 steps of 24 samples.
    assert sockets["samples"] == sim["samples"] == {"used": 96, "lost": 0, "repeated": 0}


CRASH = [{"kind": "crash", "node": "n2", "at": "1 ms"}]


def test_unequal_sizes_belong_to_nodes_so_a_plan_that_loses_one_is_refused_unless_no_group_is_to_form() -> None:
    sizes = {"n0": 8, "n1": 3, "n2": 1}
    assert can_regroup(read_experiment(document(8, "all_reduce_dp", faults=CRASH)), losses_are_planned=True)
    with pytest.raises(UsageError, match=r"batch_size: found 1 to 8 samples per node, and faults that may lose a node"):
        read_experiment(document(sizes, "all_reduce_dp", faults=CRASH))
    stays = read_experiment(document(sizes, "all_reduce_dp", faults=CRASH, regroup=False))
    assert not can_regroup(stays, losses_are_planned=True)
    read_experiment(document(sizes, "sync_ps", faults=CRASH))  # its server continues
    read_experiment(document(sizes, "all_reduce_dp"))


def test_equal_sizes_by_node_form_a_group_again_with_the_bits_of_one_number(tmp_path: Path) -> None:
    given: list[Any] = [8, {"n0": 8, "n1": 8, "n2": 8}]
    one, by_node = (
        run(document(size, "all_reduce_dp", faults=CRASH), out=tmp_path / str(number), report=False).summary
        for number, size in enumerate(given)
    )
    assert by_node["regroups"] == one["regroups"]
    assert by_node["weights_sha256"] == one["weights_sha256"]


def test_a_list_of_batch_sizes_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(UsageError) as error:
        read_experiment(document([1, 2]))
    assert [str(problem) for problem in error.value.problems] == [
        "workload.batch_size: found a list of 2, expected one number, one for each node ({mini1: 64, pi4: 4}), "
        "or a total by speed ({total: 160, by: device})"
    ]
