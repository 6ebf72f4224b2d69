"""DiLoCo with a quorum: whom a merge waits for, how it weighs, and that an endless grace is synchronous DiLoCo."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import simcluster
from simcluster.algorithms.local_steps.quorum import merges
from simcluster.algorithms.parameter_server.server import Push
from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.lab.verify.naive import outer_sgd, overwrite, vector, walk
from simcluster.payload import Message, Payload
from simcluster.workloads import BatchGroup
from tests.core.algorithms.trained import EVEN, SEED, UNEVEN, WORKLOAD, train

ROUNDS = {"interval": 3, "dynamic": False}


@pytest.mark.parametrize("quorum", [1, 3])
@pytest.mark.parametrize("topology", [EVEN, UNEVEN])
def test_with_an_endless_grace_it_is_synchronous_to_the_bit(quorum: int, topology: Any) -> None:
    run = train("async_diloco", topology, quorum=quorum, steps=11, **ROUNDS)
    synchronous = train("diloco", topology, interval=3, schedule="naive", steps=11)
    assert all(torch.equal(vector, synchronous.vectors[0]) for vector in run.vectors)
    assert run.values(0, "staleness") == [0.0] * 4 * 3, "11 steps are 4 rounds of 3 ranks"


def test_a_late_change_is_merged_in_the_next_step_and_nobody_waits_for_it() -> None:
    # Ranks 0 and 1 take 6 ms for a round of 3 steps, rank 2 takes 24 ms: it misses merges, and is then one of three.
    run = train("async_diloco", UNEVEN, quorum=2, grace_s=0.0, **ROUNDS)
    assert max(run.values(0, "staleness")) >= 2
    assert run.values(0, "applied")[-1] == 3 * 4, "every change is merged"
    patient = train("async_diloco", UNEVEN, quorum=2, **ROUNDS)
    assert run.values(0, "applied")[:4] == [2.0, 2.0, 4.0, 4.0]
    assert patient.values(0, "applied")[:3] == [3.0, 3.0, 3.0]


def test_the_grace_begins_when_the_quorum_is_there() -> None:
    # Rank 2's first change comes some 18 ms after the others': too late for a grace of 10 ms, in time for 30 ms.
    short, long = (train("async_diloco", UNEVEN, quorum=2, grace_s=grace_s, **ROUNDS) for grace_s in (0.010, 0.030))
    assert short.values(0, "applied")[0] == 2.0
    assert long.values(0, "applied")[0] == 3.0
    assert long.elapsed_s == train("async_diloco", UNEVEN, quorum=2, **ROUNDS).elapsed_s


def test_a_merge_weighs_changes_by_the_samples_that_they_were_trained_on() -> None:
    workload = replace(WORKLOAD).with_batches([2, 4, 6])
    run = train("async_diloco", EVEN, workload=workload, quorum=3, steps=4, interval=4, dynamic=False)
    replicas = [workload.replica(rank, 3, SEED, 4) for rank in range(3)]
    theta, step = outer_sgd(vector(replicas[0]), 0.7, 0.9)
    changes = []
    for replica in replicas:
        overwrite(replica, theta)
        walk(replica, replica.batches(), 4)
        changes.append(theta - vector(replica))
    step((2 * changes[0] + 4 * changes[1] + 6 * changes[2]) / 12)
    torch.testing.assert_close(run.vectors[0], theta, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("quorum", [1, 3])
def test_the_others_go_on_without_a_lost_worker(quorum: int) -> None:
    run = train("async_diloco", EVEN, quorum=quorum, faults=["kind: crash, node: n2, at: 10 ms"], **ROUNDS)
    assert not any(isinstance(result, BaseException) for result in run.results[:2])
    assert torch.equal(run.vectors[0], run.vectors[1])
    assert run.values(0, "applied")[-1] in (2 * 4 + 1, 2 * 4 + 2)


def test_a_rank_that_pushes_again_before_the_merge_counts_once_and_with_its_new_push() -> None:
    def push(rank: int, number: int) -> Push:
        content = Payload((), {"last": False})
        return Push(Message(rank, "push", content, 0), BatchGroup(rank, number, 0))

    async def news() -> AsyncGenerator[Push | None]:
        for each in (push(1, 0), None, push(1, 1), push(2, 0)):  # rank 1 restarts, and pushes again
            yield each

    async def merged() -> list[list[BatchGroup]]:
        node, replica = SimpleNamespace(rank=0, peers=(1, 2, 3)), SimpleNamespace(steps=9, done_by=lambda rank: 0)
        server: Any = SimpleNamespace(news=news)
        async with aclosing(merges(cast(Any, node), cast(Any, replica), server, [1, 2, 3], 2, 0.0)) as found:
            return [[each.group for each in pushes] async for pushes in found]

    assert asyncio.run(merged()) == [[BatchGroup(1, 1, 0), BatchGroup(2, 0, 0)]]


def test_a_server_that_only_serves_merges_too() -> None:
    run = train("async_diloco", EVEN, quorum=2, server_trains=False, **ROUNDS)
    assert run.values(0, "applied") == [2.0, 2.0, 4.0, 4.0, 6.0, 6.0, 8.0, 8.0]
    assert all(torch.equal(vector, run.vectors[0]) for vector in run.vectors)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"quorum": 4}, "quorum: found 4, expected at most 3"),
        ({"grace_s": 1.0}, "grace_s: found 1.0, expected a quorum with it"),
        ({"quorum": 2, "grace_s": -1.0}, "grace_s"),
        ({"quorum": 2, "delay": 3}, "delay: found 3, expected none with a quorum"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_run(settings: dict[str, Any], error: str) -> None:
    source = {"topology": {"generator": "star", "workers": 3}, "workload": "quadratic", "stop": {"steps": 1}}
    with pytest.raises(UsageError, match=error):
        read_experiment(source | {"algorithm": {"name": "async_diloco"} | settings})


@pytest.mark.slow
def test_with_an_endless_grace_both_backends_end_with_the_same_bits(tmp_path: Path) -> None:
    source = {
        "topology": {"generator": "star", "workers": 3},
        "algorithm": {"name": "async_diloco", "quorum": 2, **ROUNDS},
        "workload": {"name": "quadratic", "features": 12, "dtype": "float64"},
        "stop": {"steps": 12},
    }
    runs = [simcluster.run(source, backend=name, out=tmp_path / name, report=False) for name in ("sim", "sockets")]
    digests = {node["weights_sha256"] for run in runs for node in run.summary["nodes"].values()}
    assert len(digests) == 1, "the same on all ranks, and on both"
