"""FedBuff: staleness, the buffer and its rules in a run whose order is known, and what becomes of every change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

import simcluster
from simcluster.errors import UsageError
from simcluster.lab.verify.claims.diloco import FEDBUFF as CLAIM
from simcluster.lab.verify.naive import overwrite, vector, walk
from simcluster.topology import Device
from tests.core.algorithms.trained import (
    EVEN,
    SEED,
    UNEVEN,
    WORK,
    WORKLOAD,
    Trained,
    lost_somebody,
    train,
)
from tests.support.clusters import star

LATE = star(2, n1=Device("slow", 1.0))
"""n1 takes longer for a step than n0 for the whole run."""


def balance(run: Trained) -> tuple[int, int, int]:
    """(pushed, applied, rejected), as claimed."""
    assert CLAIM.contributions is not None
    account = CLAIM.contributions(
        [{name: [(0, value) for value in run.values(rank, name)] for name in ("pushed", "applied", "rejected")}
         for rank in range(len(run.records))]
    )  # fmt: skip
    return account.pushed, account.applied, account.rejected


@pytest.mark.parametrize(("damping", "scale"), [("none", 1.0), ("root", 0.5)])
@pytest.mark.parametrize("eta", [1.0, 0.3])
def test_a_late_change_is_divided_by_the_root_of_one_and_its_staleness(damping: str, scale: float, eta: float) -> None:
    # The server makes 3 rounds, each a step; then n1's first change is 3 steps stale: 1 / sqrt(1 + 3). From its first
    # pull on n1 is alone, and never stale again.
    run = train("fedbuff", LATE, interval=4, buffer=1, damping=damping, server_learning_rate=eta)
    assert run.values(0, "staleness") == [0.0] * 3 + [3.0, 0.0, 0.0]
    server, worker = (WORKLOAD.replica(rank, 2, SEED, 12) for rank in range(2))
    first = w = vector(server)
    for replica, batches in ((server, server.batches()), (worker, worker.batches())):
        for number in range(3):
            late = replica is worker and number == 0
            start = first if late else w
            overwrite(replica, start)
            walk(replica, batches, 4)
            w = w - eta * (scale if late else 1.0) * (start - vector(replica))
    for mine in run.vectors:
        torch.testing.assert_close(mine, w, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("max_staleness", "rejected"), [(3, 0), (2, 1)])
def test_a_change_exactly_at_the_bound_is_taken(max_staleness: int, rejected: int) -> None:
    run = train("fedbuff", LATE, interval=4, buffer=1, max_staleness=max_staleness)
    assert balance(run) == (6, 6 - rejected, rejected)


def test_the_server_steps_when_the_buffer_is_full_and_once_more_for_what_is_left() -> None:
    # 3 ranks make 3 rounds each; with K = 2 that is 4 steps of two changes and one of what is left.
    run = train("fedbuff", EVEN, interval=4, buffer=2)
    assert run.values(0, "applied")[-1] == 9.0
    assert sorted(set(run.values(0, "applied"))) == [0.0, 2.0, 4.0, 6.0, 8.0, 9.0]
    # Three changes a step, however large the buffer: nobody waits for more than all ranks' together.
    large = train("fedbuff", EVEN, interval=4, buffer=100)
    assert sorted(set(large.values(0, "applied"))) == [0.0, 3.0, 6.0, 9.0]


@pytest.mark.parametrize("settings", [{}, {"max_staleness": 0, "buffer": 1}, {"compression": "top_k"}], ids=str)
def test_every_change_is_accounted_for(settings: dict[str, Any]) -> None:
    pushed, applied, rejected = balance(train("fedbuff", UNEVEN, interval=2, **settings))
    assert pushed == applied + rejected == 3 * 6
    assert (rejected > 0) == ("max_staleness" in settings)


def test_nobody_waits_for_a_slow_rank() -> None:
    # A step is two pieces of work of 1 ms; n2's takes 8 ms. n1 is done long before n2, and n2 is not held up.
    run = train("fedbuff", UNEVEN, interval=3)
    ends = [max(span.end_s for span in record.spans) for record in run.records]
    assert ends[1] < 0.5 * ends[2]


def test_a_small_form_travels_up_and_weights_come_down() -> None:
    dense, small = (train("fedbuff", 2, interval=4, compression=kind) for kind in ("none", "fp16"))
    # 3 pushes of 6 numbers, 8 bytes each or 2, and a dimension less in the header.
    assert sum(dense.sizes("push")) - sum(small.sizes("push")) == 3 * (6 * (8 - 2) + 1)
    assert dense.sizes("answer") == small.sizes("answer")


def test_a_server_that_only_serves_makes_no_change_and_steps_for_as_many_as_train() -> None:
    run = train("fedbuff", EVEN, interval=4, buffer=100, server_trains=False)
    assert sorted(set(run.values(0, "applied"))) == [0.0, 2.0, 4.0, 6.0]
    assert run.values(0, "loss") == []
    assert max(metric.step for metric in run.records[0].metrics) == 3, "its steps are its own"
    with pytest.raises(UsageError, match="no rank trains"):
        train("fedbuff", 1, server_trains=False)


def test_as_many_workers_train_at_a_time_as_the_concurrency_says() -> None:
    # 2 places of 3 rounds each (12 steps of 4): 6 rounds among 5 workers, and never more than two at a time.
    run = train("fedbuff", 6, interval=4, concurrency=2, server_trains=False)
    assert run.values(0, "applied")[-1] == 6.0
    assert sum(len(run.values(rank, "pushed")) for rank in range(1, 6)) == 6
    rounds = [
        (call.end_s, push.end_s)
        for record in run.records[1:]
        for call, push in zip(
            [span for span in record.spans if (span.kind, span.tag) == ("recv", "call")],
            [span for span in record.spans if (span.kind, span.tag) == ("send", "push")],
            strict=True,
        )
    ]
    assert len(rounds) == 6
    assert max(sum(start_s <= at_s < end_s for start_s, end_s in rounds) for at_s, _ in rounds) == 2


def test_a_concurrency_of_all_workers_gives_each_all_of_its_rounds() -> None:
    run = train("fedbuff", 4, interval=4, concurrency=3, server_trains=False)
    assert [run.values(rank, "pushed")[-1] for rank in (1, 2, 3)] == [3.0, 3.0, 3.0]
    assert run.values(0, "applied")[-1] == 9.0


def test_one_place_is_a_step_after_the_other_without_staleness() -> None:
    run = train("fedbuff", 4, interval=4, concurrency=1, buffer=1, server_trains=False)
    assert run.values(0, "staleness") == [0.0] * 3


def test_a_server_that_only_serves_fails_with_all_its_workers_although_rounds_were_made() -> None:
    whole = train("fedbuff", 2, interval=4, concurrency=1, server_trains=False)
    second = [span for span in whole.records[1].spans if span.tag == "call"][1].end_s
    plan = [f"kind: crash, node: n1, at: {second} s"]  # after one round of three
    run = train("fedbuff", 2, interval=4, concurrency=1, server_trains=False, faults=plan)
    assert run.values(0, "applied") == [1.0]
    assert lost_somebody(run.results[0])


def test_another_rank_is_called_in_the_place_of_one_that_is_lost() -> None:
    whole = train("fedbuff", 6, interval=4, concurrency=2, server_trains=False)
    first = next(rank for rank in range(1, 6) if whole.values(rank, "pushed"))
    at_s = min(span.end_s for span in whole.records[first].spans)  # while it trains
    plan = [f"kind: crash, node: n{first}, at: {at_s * 1.5} s"]
    run = train("fedbuff", 6, interval=4, concurrency=2, server_trains=False, faults=plan)
    assert len(run.values(first, "pushed")) < len(whole.values(first, "pushed"))
    assert run.values(0, "applied")[-1] == 6.0, "none of the rounds is missing"


@pytest.mark.parametrize("concurrency", [1, 2, 3])
@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
@pytest.mark.parametrize("then", ["crash", "restart"])
def test_whenever_a_worker_is_lost_the_others_make_its_rounds(concurrency: int, node: str, then: str) -> None:
    topology = star(4, bandwidth_Bps=1e5, **{f"n{rank}": Device("even", **WORK) for rank in range(4)})
    rounds = 2 * (1 + concurrency)  # two in each place, and the server's own
    for at_ms in range(1, 31):
        plan = f"kind: {then}, node: {node}, at: {at_ms} ms" + (", after: 2 ms" if then == "restart" else "")
        run = train("fedbuff", topology, steps=3, faults=[plan], numerics="none", interval=2, concurrency=concurrency)
        assert run.results[0] is None
        # No rank makes more than two, so two workers cannot replace a third in time.
        assert min(rounds, 6) <= run.values(0, "applied")[-1] <= rounds


def test_a_worker_that_is_back_after_all_were_lost_is_called_again() -> None:
    two = star(2, **{f"n{rank}": Device("even", **WORK) for rank in range(2)})
    run = train("fedbuff", two, faults=["kind: restart, node: n1, at: 3 ms, after: 4 ms"], interval=2, concurrency=1)
    assert run.results == [None, None]
    assert run.values(0, "applied")[-1] == 12.0, "six rounds of each"


@pytest.mark.parametrize("compression", ["none", "int8"])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_server_that_only_serves_calls_workers_that_all_join_late(concurrency: int, compression: str) -> None:
    plan = [f"kind: join, node: n{rank}, at: {3 * rank} ms" for rank in (1, 2)]
    settings = {"interval": 2, "concurrency": concurrency, "compression": compression, "server_trains": False}
    run = train("fedbuff", EVEN, faults=plan, **settings)
    assert run.results == [None] * 3
    assert run.values(0, "applied")[-1] == 6.0 * concurrency, "six rounds in each place"


def test_a_worker_that_joins_takes_a_free_place_while_another_trains() -> None:
    slow = star(3, **{f"n{rank}": Device("slow", 1e15, work_overhead_s=1e-2) for rank in range(3)})
    run = train("fedbuff", slow, faults=["kind: join, node: n2, at: 5 ms"], interval=2, concurrency=2)
    first = min(span.end_s for span in run.records[2].spans if span.tag == "call")
    assert first < min(span.end_s for span in run.records[1].spans if span.tag == "push")


def test_a_worker_of_a_cohort_that_joins_after_the_server_has_ended_has_missed_the_run() -> None:
    run = train("fedbuff", EVEN, faults=["kind: join, node: n2, at: 1 s"], interval=2, concurrency=1)
    assert run.results[:2] == [None, None]
    assert isinstance(run.results[2], asyncio.CancelledError)
    assert not run.records[2].spans, "it has not begun"


def test_a_worker_that_stands_for_a_run_whose_server_was_lost_at_the_end_has_weights(tmp_path: Path) -> None:
    cohort = {"name": "fedbuff", "interval": 1, "concurrency": 1, "server_trains": False}
    crash = {"kind": "crash", "node": "n0", "at": "49.95 ms"}  # the time is up before a worker hears of it
    nodes = {f"n{rank}": {"flops": "1 GFLOP/s", "work_overhead": "1 ms"} for rank in range(4)}
    links = [{"between": ["n0", f"n{rank}"], "bandwidth": "1 Gbps", "latency": "100 us"} for rank in (1, 2, 3)]
    run = simcluster.run(
        topology={"name": "star", "nodes": nodes, "links": links}, algorithm=cohort, workload="quadratic",
        stop={"steps": 1000, "time": "50 ms"}, faults=[crash], out=tmp_path / "run", report=False,
    )  # fmt: skip
    assert list(run.summary["lost"]) == ["n0"]
    assert run.summary["loss"] is not None
    assert all(torch.isfinite(weights).all() for weights in run.weights().values())
