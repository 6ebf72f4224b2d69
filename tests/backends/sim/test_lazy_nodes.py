"""Ranks that rest until they are called: a run is the same to the bit, whether or not they exist before that."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from simcluster_backends.sim import run as backend
from simcluster_backends.sim.cluster import SimCluster

import simcluster
from simcluster.errors import UsageError
from simcluster.experiment.read import fit
from simcluster.lab.reports.report_tables import compute_share
from simcluster.payload import Message
from simcluster.runs import record, schema, summary
from simcluster.workloads import Replica

COHORT = {"name": "fedbuff", "concurrency": 5, "buffer": 5, "server_trains": False}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect how many nodes each cluster has made by its end."""
    counts: list[int] = []
    run = SimCluster.run

    def counted(cluster: SimCluster, bodies: Any) -> list[Any]:
        try:
            return run(cluster, bodies)
        finally:
            counts.append(len(list(cluster.members)))

    monkeypatch.setattr(SimCluster, "run", counted)
    return counts


def trained(out: Path, workers: int, **keys: Any) -> simcluster.Run:
    star = {"generator": "star", "workers": workers, "bandwidth": "1 Gbps", "latency": "50 us"}
    plan = {"name": "cohort", "workload": {"name": "mnist_mlp", "batch_size": 4}, "algorithm": COHORT, "topology": star}
    return simcluster.run({**plan, "stop": {"steps": 30}, "numerics": "none", **keys}, out=out, report=False)


def facts(run: simcluster.Run) -> dict[str, Any]:
    return {key: value for key, value in run.summary.items() if key != "wall_s"}


@pytest.mark.slow
@pytest.mark.parametrize("server_trains", [True, False])
@pytest.mark.parametrize("numerics", ["none", "real"])
def test_a_run_is_the_same_to_the_bit_as_one_in_which_no_rank_rests(
    tmp_path: Path, made: list[int], monkeypatch: pytest.MonkeyPatch, numerics: str, server_trains: bool
) -> None:
    keys = {"numerics": numerics, "algorithm": {**COHORT, "server_trains": server_trains}}
    resting = trained(tmp_path / "resting", 40, **keys)
    monkeypatch.setattr(backend, "_may_rest", lambda job: False)
    awake = trained(tmp_path / "awake", 40, **keys)
    # 5 places with 3 rounds each call at most 15 of the 39 workers; with the server and one that ends for the others.
    assert made[0] <= 17
    assert made[1] == 40
    assert facts(resting) == facts(awake)


@pytest.mark.slow
def test_clients_hold_weights_only_while_they_train_and_end_with_those_of_a_run_that_kept_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    drop = Replica.drop_weights

    def dropped(replica: Replica) -> None:
        drop(replica)
        held.append(sum(weight.untyped_storage().nbytes() for weight in replica._live))

    monkeypatch.setattr(Replica, "drop_weights", dropped)
    run = trained(tmp_path / "dropped", 40, numerics="real")
    # 15 rounds; a number of 4 bytes is left of each of the four weights.
    assert held == [16] * 15
    monkeypatch.setattr(Replica, "drop_weights", lambda replica: None)
    assert facts(run) == facts(trained(tmp_path / "kept", 40, numerics="real"))


@pytest.mark.slow
def test_a_message_is_kept_no_longer_than_its_client_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    drop = Replica.drop_weights

    def messages() -> list[Message]:
        gc.collect()
        return [found for found in gc.get_objects() if isinstance(found, Message) and found.tag in ("call", "push")]

    def dropped(replica: Replica) -> None:
        drop(replica)
        kept.append(len(messages()) - len(of_other_tests))

    of_other_tests = messages()
    monkeypatch.setattr(Replica, "drop_weights", dropped)
    trained(tmp_path / "run", 40, numerics="real")
    assert len(kept) == 15
    # At most a call and a push for each of the 5 places, not of each of the 15 clients so far.
    assert max(kept) <= 10


@pytest.mark.slow
def test_the_servers_times_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    # Workers are equal, so which of them is drawn changes no time: equal floats, not nearly equal ones.
    few, many = (trained(tmp_path / str(size), size) for size in (40, 1000))
    times = [run.metrics[run.metrics["node"] == "n0"][["time_s", "step", "name"]] for run in (few, many)]
    assert times[0].to_numpy().tolist() == times[1].to_numpy().tolist()
    assert len(times[0])
    assert few.summary["elapsed_s"] == many.summary["elapsed_s"]


def test_a_rank_on_a_longer_link_hears_later_that_the_server_has_ended(
    tmp_path: Path, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    far = {"topology": {"generator": "two_sites", "workers_a": 20, "workers_b": 20}}
    resting = trained(tmp_path / "resting", 40, **far)
    monkeypatch.setattr(backend, "_may_rest", lambda job: False)
    assert facts(resting) == facts(trained(tmp_path / "awake", 40, **far))
    assert made[0] < made[1] == 40
    # The network between the sites has a latency of 20 ms, each way.
    ends_s = [node["finished_s"] for node in resting.summary["nodes"].values()]
    assert max(ends_s) - min(ends_s[1:]) >= 0.02


def test_no_rank_rests_where_a_fault_may_reach_it(tmp_path: Path, made: list[int]) -> None:
    trained(tmp_path / "run", 40, faults=[{"kind": "slow", "node": "n7", "factor": 2, "at": "0 s", "for": "1 s"}])
    assert made == [40]


def test_a_large_run_has_one_row_for_the_nodes_on_which_nothing_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = trained(tmp_path / "listed", 40)
    idle = [name for name, node in listed.summary["nodes"].items() if not node["bytes_received"]]
    for module in ("summary", "trace"):
        monkeypatch.setattr(f"simcluster.runs.{module}.LISTED", 10)
    large = simcluster.load_run(trained(tmp_path / "large", 40).folder)
    assert record.LISTED > 40
    assert large.summary["resting"]["nodes"] == len(idle) > 20
    assert large.summary["resting"]["first"] == idle[0]
    assert large.summary["nodes"].keys() == listed.summary["nodes"].keys() - set(idle)
    assert large.summary["joules"] == listed.summary["joules"]
    assert large.summary["trace_sha256"] == listed.summary["trace_sha256"]
    assert large.spans == listed.spans
    assert large.plot.timeline().to_json() == simcluster.load_run(listed.folder).plot.timeline().to_json()
    assert compute_share(large.summary) == pytest.approx(compute_share(listed.summary))


def test_only_as_many_nodes_may_work_as_the_files_of_a_run_can_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (fit, schema):
        monkeypatch.setattr(module, "MOST_NODES", 16)
    monkeypatch.setattr(summary, "LISTED", 10)
    # 5 places with 3 rounds: the server and at most 15 others, of any number.
    run = trained(tmp_path / "run", 40)
    assert len(run.summary["nodes"]) + run.summary["resting"]["nodes"] == 40
    plan = {"faults": [{"kind": "crash", "node": "n3", "at": "1 s"}]}
    for size, keys in ((40, plan), (40, {"algorithm": {**COHORT, "concurrency": 6}}), (17, {"algorithm": "sync_ps"})):
        working = 19 if "algorithm" in keys and size == 40 else size
        with pytest.raises(
            UsageError, match=rf"topology: found {working} nodes that may work, of {size}, expected at most 16"
        ):
            trained(tmp_path / "refused", size, **keys)
    assert not (tmp_path / "refused").exists()
    assert len(trained(tmp_path / "few", 16, algorithm="sync_ps").summary["nodes"]) == 16
