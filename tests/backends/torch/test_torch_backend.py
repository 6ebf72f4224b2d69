"""The torch backend: the promises over gloo, whole runs under torchrun and by itself, and how runs end badly."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from simcluster_backends.torch import frame as frame_module
from simcluster_backends.torch import run_cluster
from simcluster_backends.torch.frame import TorchFrameKind, control_frame
from simcluster_backends.torch.group import HashStore, WorldPlace, first_line, place_of
from simcluster_backends.torch.link import RankLink
from simcluster_backends.torch.node import take_part
from simcluster_backends.torch.settings import TorchOptions, read_options

import simcluster
from simcluster.cli.app import main
from simcluster.errors import (
    LaunchFailed,
    NeverFinished,
    NodeFailed,
    PeerLost,
    RunError,
    UsageError,
    WrittenElsewhere,
)
from simcluster.fault_plans.kinds import Crash
from simcluster.job import ClusterJob
from simcluster.payload import pack, sizes_of
from simcluster.runs.record import RunRecord
from simcluster.testing import CHECKS, RunBodies
from tests.support import node_programs
from tests.support.node_programs import LET_GO, line_of
from tests.support.root import ROOT
from tests.support.seen import Seen
from tests.support.socket_runs import job
from tests.support.torch_cluster import run_bodies

EXAMPLES = ROOT / "docs" / "torch"
QUICK = TorchOptions(heartbeat_s=0.05)


def in_threads(request: ClusterJob, options: TorchOptions = QUICK) -> list[RunRecord | RunError | None]:
    """Every rank of *request* in a thread of this process: the whole of a run but its processes."""
    store, size = HashStore(), len(request.names)
    with ThreadPoolExecutor(size) as threads:
        parts = [
            threads.submit(take_part, request, options, WorldPlace(rank, size, True), store) for rank in range(size)
        ]
    return [part.result() for part in parts]


def record_of(outcome: RunRecord | RunError | None) -> RunRecord:
    assert isinstance(outcome, RunRecord)
    return outcome


# the promises


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_promise(check: Callable[[RunBodies], None]) -> None:
    check(run_bodies)


def test_a_tensor_of_many_parts_arrives_whole_and_counts_as_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_module, "PART_BYTES", 1000)
    content = torch.arange(10_000.0)

    async def body(node: Any) -> tuple[bool, int]:
        other = 1 - node.rank
        async with asyncio.TaskGroup() as group:
            group.create_task(node.send(other, "t", content))
            message = await node.recv(other, "t")
        return torch.equal(message.tensors[0], content), message.size_bytes

    assert run_bodies([body, body]) == [(True, sum(sizes_of("t", pack(content))))] * 2


# whole runs


@pytest.mark.slow
def test_torchrun_gives_the_weights_of_the_simulator(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    script = [str(EXAMPLES / "two_runs.py"), str(EXAMPLES / "three.yaml"), str(tmp_path)]
    done = subprocess.run([*command, *script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all_reduce_dp", "sync_ps"]  # by rank 0 alone
    for algorithm in ("sync_ps", "all_reduce_dp"):
        config = yaml.safe_load((tmp_path / algorithm / "config.yaml").read_text())
        measured = json.loads((tmp_path / algorithm / "summary.json").read_text())
        simulated = simcluster.run(
            config, backend="sim", out=tmp_path / f"{algorithm} sim", report=False
        ).summary  # fmt: skip
        assert (measured["backend"], measured["status"]) == ("torch", "done")
        for key in ("weights_sha256", "bytes_sent", "messages_sent", "steps", "loss"):
            assert measured[key] == simulated[key], key
        assert measured["weights_sha256"] is not None
        assert set(simulated) <= set(measured)


@pytest.mark.slow
def test_a_run_of_its_own_loses_one_that_is_killed_and_one_that_hangs(tmp_path: Path) -> None:
    names, told, seen = "abc", threading.Event(), Seen()

    def harm(rank: int, step: int) -> None:
        if step >= 2 and not told.is_set() and all((tmp_path / f"{name}.pid").is_file() for name in "bc"):
            told.set()
            os.kill(int((tmp_path / "b.pid").read_text()), signal.SIGKILL)
            os.kill(int((tmp_path / "c.pid").read_text()), signal.SIGSTOP)

    options = {"heartbeat_s": 0.1, "dead_s": 3.0}
    record = run_cluster(
        job(
            "bears_losses", names, tmp_path, on_progress=harm, options=options, log_folder=tmp_path / "logs",
            watcher=seen,
        )
    )  # fmt: skip
    assert record.nodes[0].weights_sha256 == "survived"
    assert sorted(record.extra["lost"]) == ["b", "c"]
    assert record.extra["lost"]["c"] == "silent for 3 s"
    assert record.error is None  # the first rank did without them
    assert [node.state for node in seen.last.nodes] == ["ended", "lost", "lost"]
    assert (seen.last.nodes[2].reason, seen.error) == ("silent for 3 s", "")
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["a.log", "b.log", "c.log"]
    for name in "bc":
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / f"{name}.pid").read_text()), 0)


def test_every_rank_hands_its_record_to_rank_0() -> None:
    first, *others = in_threads(job("ring"))
    record = record_of(first)
    assert record.error is None
    assert others == [None, None]
    # 0 + 1 + 2 = 3; each of the 2 rounds sends once
    assert [node.weights_sha256 for node in record.nodes] == ["m-3.0"] * 3
    assert [node.messages_sent for node in record.nodes] == [2, 2, 2]
    assert [node.bytes_sent for node in record.nodes] == [node.bytes_received for node in record.nodes]
    assert record.elapsed_s == max(node.finished_s or 0.0 for node in record.nodes)


def test_one_rank_alone_is_a_run() -> None:
    assert record_of(in_threads(job("ring", "a"))[0]).error is None


@pytest.mark.parametrize("program", ["fails", "raises_odd", "exits"])
def test_what_one_rank_raises_is_the_runs_error(program: str) -> None:
    first, second, third = in_threads(job(program))
    error = record_of(first).error
    assert isinstance(error, NodeFailed)
    # In `exits`, rank 2 receives from rank -1, which fails, too: the first one counts.
    assert error.rank in ((1, 2) if program == "exits" else (1,))
    assert isinstance(second, NodeFailed)
    assert isinstance(third, NodeFailed if program == "exits" else PeerLost)


def test_a_deadlock_ends_and_says_who_waits_for_what() -> None:
    first, second = in_threads(job("waits_for_nothing", "ab"), replace(QUICK, stuck_s=0.5))
    error = record_of(first).error
    assert isinstance(error, NeverFinished)
    at = line_of(node_programs.waits_for_nothing, "node.recv(")
    waits = [f"rank {r} ({n}) waits for recv(source={1 - r}, tag='never') at {at}" for r, n in enumerate("ab")]
    assert error.waits == waits
    assert isinstance(second, NeverFinished | PeerLost)  # told to stop, or that rank 0 has


def test_a_message_with_another_tag_is_named_as_unread() -> None:
    error = record_of(in_threads(job("reads_another_tag", "ab"), replace(QUICK, stuck_s=0.5))[0]).error
    assert isinstance(error, NeverFinished)
    at = line_of(node_programs.reads_another_tag, "node.recv(")
    wait = f"rank 1 (b) waits for recv(source=0, tag='grad') at {at}"
    assert error.waits[1] == f"{wait}; unread: 2 messages from rank 0 (a) with tag 'grads'"


@pytest.mark.parametrize("program", ["polls", "computes_for_ever"])
def test_what_does_not_stop_is_left_behind(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcluster_backends.torch.node.STOP_S", 0.1)
    monkeypatch.setattr("simcluster_backends.common.event_loop.LEAVE_S", 0.1)
    monkeypatch.setattr("simcluster_backends.torch.member.WORK_S", 0.1)
    try:
        (first,) = in_threads(job(program, "a", tmp_path), replace(QUICK, idle_s=0.3))
    finally:
        LET_GO.set()
        for thread in threading.enumerate():
            if thread.name.startswith("device of"):
                thread.join()
        LET_GO.clear()
    assert isinstance(record_of(first).error, NeverFinished)


# what is refused


def test_ranks_with_different_experiments_do_not_begin() -> None:
    store, jobs = HashStore(), [job("ring", "ab"), replace(job("ring", "ab"), seed=1)]
    with ThreadPoolExecutor(2) as threads:
        parts = [threads.submit(take_part, jobs[rank], QUICK, WorldPlace(rank, 2, True), store) for rank in range(2)]
    for rank, part in enumerate(parts):
        with pytest.raises(LaunchFailed, match=rf"rank {1 - rank} \(.\) has another"):
            part.result()


def test_a_rank_that_never_comes_is_named() -> None:
    with pytest.raises(LaunchFailed, match=r"rank 1 \(b\) did not"):
        take_part(job("ring", "ab"), replace(QUICK, start_s=0.2), WorldPlace(0, 2, True), HashStore())


def test_all_that_cannot_be_done_is_said_at_once() -> None:
    request = job("ring", faults=(Crash(spells=((0.1, 1.0),), rank=1),), options={"dead_z": 1, "stuck_s": -1})
    with pytest.raises(UsageError) as refused:
        read_options(request, WorldPlace(0, 4))
    assert [problem.key for problem in refused.value.problems] == ["faults", "dead_z", "stuck_s", "WORLD_SIZE"]


def test_time_that_is_over_is_a_limit() -> None:
    assert read_options(job("ring", time_s=5.0), None).limit_s == 35.0


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({}, None),
        ({"RANK": "1", "WORLD_SIZE": "3"}, None),  # nobody says where to meet
        ({"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "m", "MASTER_PORT": "1"}, WorldPlace(1, 3)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "3", "MASTER_ADDR": "m", "MASTER_PORT": "1"}, WorldPlace(2, 3)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "3"}, None),
    ],
)
def test_a_process_learns_its_rank_from_who_started_it(environ: dict[str, str], place: WorldPlace | None) -> None:
    assert place_of(environ) == place


def test_half_an_environment_is_refused_whole() -> None:
    with pytest.raises(UsageError) as refused:
        place_of({"RANK": "x", "MASTER_ADDR": "m"})
    assert [problem.key for problem in refused.value.problems] == ["RANK", "WORLD_SIZE", "MASTER_PORT"]


def test_a_rank_that_does_not_write_exits_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise WrittenElsewhere(1, "n1")

    monkeypatch.setattr("simcluster.experiment.run", run)
    monkeypatch.setattr(sys, "argv", ["simcluster", "run", "quickstart", "--backend", "torch", "--json"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0


def test_of_what_gloo_says_the_reason_is_kept() -> None:
    said = "[/src/tcp/pair.cc:557] Connection closed by peer [::1]:925. This is typically caused by a remote worker."
    assert first_line(RuntimeError(said)) == "Connection closed by peer [::1]:925"
    assert first_line(RuntimeError("plain\nException raised from")) == "plain"
    assert first_line(RuntimeError()) == "RuntimeError"


def test_a_send_from_which_gloo_never_returns_is_given_up_with_its_peer() -> None:
    begun, let_go = threading.Event(), threading.Event()

    class Forgetful:
        def send(self, rank: int, tensor: torch.Tensor, tag: int = 0) -> None:
            begun.set()
            let_go.wait()

        recv = send

    async def main() -> None:
        loop = asyncio.get_running_loop()
        link = RankLink(Forgetful(), 1, loop, lambda *_: True, lambda *_: None, lambda *_: None)  # type: ignore[arg-type]
        link.start()
        left = link.put(control_frame(TorchFrameKind.END, b"")).injected
        await loop.run_in_executor(None, begun.wait)
        link.close("its process is gone")
        with pytest.raises(ConnectionError, match="its process is gone"):
            await left

    try:
        asyncio.run(main())
    finally:
        let_go.set()
