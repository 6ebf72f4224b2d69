"""Work in threads: the same bits, times and traces as without, whatever else its node does meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from simcluster_backends.sim import transport
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.loop.workers import ThreadWork, Workers

import simcluster
from simcluster.errors import UsageError
from simcluster.transport import Cost, Transport
from simcluster.workloads import Replica, mnist_mlp
from tests.support.clusters import star

LARGE = Cost(1e9)  # a second on the ideal device, and enough for a thread
SMALL = Cost(1.0)


def experiment(algorithm: str, **workload: Any) -> dict[str, Any]:
    return {
        "name": "threads",
        "topology": {"generator": "star", "workers": 5, "device": "raspberry-pi-5"},
        "algorithm": {"name": algorithm},
        "workload": {"name": "mnist_mlp", "hidden": 64, "batch_size": 64, **workload},
        "stop": {"steps": 6},
        "seed": 2,
    }


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["sync_ps", "edp", "all_reduce_dp"])
def test_one_thread_or_three_give_the_same_trace_and_weights(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "LEAST_FLOPS", 0.0)
    runs = [
        simcluster.run(experiment(algorithm), options={"threads": threads}, out=tmp_path / str(threads), report=False)
        for threads in (1, 3)
    ]
    for key in ("trace_sha256", "weights_sha256", "elapsed_s", "loss", "accuracy"):
        assert runs[0].summary[key] == runs[1].summary[key], key
    for name, node in runs[0].summary["nodes"].items():
        assert node["weights_sha256"] == runs[1].summary["nodes"][name]["weights_sha256"]


def test_dropout_draws_the_same_in_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "LEAST_FLOPS", 0.0)
    (tmp_path / "work.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "from simcluster import Workload\n"
        "from simcluster.workloads import sgd\n"
        "def make():\n"
        "    data = torch.linspace(-1, 1, 400).reshape(200, 2), torch.arange(200) % 2\n"
        "    model = lambda: nn.Sequential(nn.Linear(2, 64), nn.Dropout(0.5), nn.Linear(64, 2))\n"
        "    return Workload(model, torch.nn.functional.cross_entropy, data, sgd(0.1), 8)\n"
    )
    source = experiment("all_reduce_dp") | {"workload": {"path": f"{tmp_path / 'work.py'}:make"}}
    hashes = {
        simcluster.run(source, options={"threads": threads}, out=tmp_path / str(threads), report=False).summary[
            "weights_sha256"
        ]
        for threads in (1, 3)
    }
    assert len(hashes) == 1


class Work(Replica):
    """A replica whose only work is *function*: of others, it is not known whether they may run in threads."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def do(self) -> Any:
        return self.function()


def run(bodies: list[Any], threads: int) -> list[Any]:
    return SimCluster(star(len(bodies)), threads=threads).run(bodies)


def test_work_of_two_nodes_runs_at_the_same_time() -> None:
    # Each waits for the other: one after the other they would break the barrier.
    barrier = threading.Barrier(2, timeout=30)

    async def body(node: Transport) -> int:
        return await node.compute(Work(lambda: barrier.wait() and 0).do, cost=LARGE)

    assert run([body, body], threads=2) == [0, 0]


def test_a_piece_runs_whole_in_one_thread_of_one_torch_thread_and_not_the_loops() -> None:
    async def body(node: Transport) -> tuple[str, int]:
        return await node.compute(
            Work(lambda: (threading.current_thread().name, torch.get_num_threads())).do, cost=LARGE
        )

    seen = run([body] * 6, threads=2)
    assert {name for name, _ in seen} <= {"work-0", "work-1"}
    assert {number for _, number in seen} == {1}


def test_only_large_work_of_replicas_is_handed_over_and_only_if_there_are_threads() -> None:
    async def body(node: Transport, work: Callable[[], str], cost: Cost) -> str:
        return await node.compute(work, cost=cost)

    def where() -> str:
        return threading.current_thread().name

    assert run([lambda node: body(node, Work(where).do, LARGE)], threads=2) == ["work-0"]
    assert run([lambda node: body(node, Work(where).do, SMALL)], threads=2) == [where()]
    assert run([lambda node: body(node, Work(where).do, LARGE)], threads=1) == [where()]
    assert run([lambda node: body(node, where, LARGE)], threads=2) == [where()], "a function may share anything"


def test_nothing_else_of_a_node_runs_while_its_work_is_under_way() -> None:
    """What a node's other task writes after the work began is not seen by it, as without threads."""

    async def body(node: Transport) -> list[float]:
        weights = torch.zeros(1)
        may_end = threading.Event()

        def work() -> float:
            # Ends late on the wall clock; the other task is to write only then.
            may_end.wait(0.2)
            return float(weights[0])

        async def writes() -> None:
            await asyncio.sleep(0.5)  # half of the work's virtual time
            weights[0] = 1.0
            may_end.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(writes())
            seen = await node.compute(Work(work).do, cost=LARGE)
        return [seen, float(weights[0]), asyncio.get_running_loop().time()]

    assert run([body], threads=1) == run([body], threads=2) == [[0.0, 1.0, 1.0]]


def test_other_nodes_go_on_while_work_is_under_way() -> None:
    released = threading.Event()

    async def works(node: Transport) -> bool:
        return await node.compute(Work(lambda: released.wait(30)).do, cost=LARGE)

    async def goes_on(node: Transport) -> bool:
        await asyncio.sleep(0.5)
        released.set()
        return True

    assert run([works, goes_on], threads=2) == [True, True]


@pytest.mark.parametrize("threads", [1, 2])
def test_what_work_raises_is_raised_at_its_virtual_end(threads: int) -> None:
    async def body(node: Transport) -> tuple[str, float]:
        try:
            await node.compute(Work(lambda: 1 // 0).do, cost=LARGE)
        except ZeroDivisionError as error:
            return str(error), asyncio.get_running_loop().time()
        raise AssertionError

    assert [outcome[1] for outcome in run([body, body], threads)] == [1.0, 1.0]


@pytest.mark.parametrize("threads", [1, 2])
def test_cancelled_work_is_over_before_its_node_goes_on(threads: int) -> None:
    async def body(node: Transport) -> tuple[bool, float]:
        done = []

        def work() -> None:
            threading.Event().wait(0.1)
            done.append(True)

        try:
            async with asyncio.timeout(0.25):
                await node.compute(Work(work).do, cost=LARGE)
        except TimeoutError:
            return bool(done), asyncio.get_running_loop().time()
        raise AssertionError

    assert run([body], threads) == [(True, 0.25)]


def test_threads_end_with_the_cluster() -> None:
    async def body(node: Transport) -> None:
        await node.compute(Work(lambda: None).do, cost=LARGE)

    before = threading.active_count()
    run([body] * 4, threads=4)
    assert threading.active_count() == before


def test_ctrl_c_during_work_is_not_kept_for_its_result() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Workers(1).begin("owner", interrupted, hand_over=True)
    piece = ThreadWork(interrupted)
    with pytest.raises(KeyboardInterrupt):
        piece.run()
    piece.wait()  # nobody is left waiting


def test_closed_in_a_hurry_work_that_never_ends_is_not_waited_for() -> None:
    never = threading.Event()
    crew = Workers(2)
    crew.begin("owner", never.wait, hand_over=True)
    crew.close(within_s=0.01)
    crew.join("owner")
    never.set()


@pytest.mark.parametrize("threads", [0, -1, 2.0, True, "2"])
def test_a_number_of_threads_that_is_none_is_told(threads: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"threads: found .*, expected a whole number from 1 to 4096"):
        simcluster.run(experiment("edp"), options={"threads": threads}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_work_that_is_only_timed_is_not_worth_a_thread() -> None:
    replica = mnist_mlp().replica(0, 1, 0, 1, numerics="none")
    assert not transport._is_of_a_replica(replica.loss_and_gradients)
    assert transport._is_of_a_replica(mnist_mlp().replica(0, 1, 0, 1).loss_and_gradients)


def test_every_core_is_used_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(transport, "LEAST_FLOPS", 0.0)
    monkeypatch.setattr("simcluster_backends.sim.run.usable_cores", lambda: 3)

    class Seen(Workers):
        def __init__(self, threads: int) -> None:
            seen.append(threads)
            super().__init__(threads)

    monkeypatch.setattr("simcluster_backends.sim.loop.event_loop.Workers", Seen)
    for options in ({}, {"threads": 2}):
        simcluster.run(experiment("edp"), options=options, out=tmp_path / "run", report=False)
    assert seen == [3, 2]
