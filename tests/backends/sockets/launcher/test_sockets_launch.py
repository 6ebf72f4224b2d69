"""Whole runs over processes: how they end well, how they end badly, and with which error."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import socket
import time
from collections import Counter
from dataclasses import replace
from math import inf
from pathlib import Path

import psutil
import pytest
from simcluster_backends.common import options
from simcluster_backends.sockets import generate_key, run_cluster, write_key
from simcluster_backends.sockets.launcher import departures as ending
from simcluster_backends.sockets.node.process import join

from simcluster.errors import HandshakeRefused, NeverFinished, NodeFailed, PeerLost, UsageError
from simcluster.fault_plans.kinds import Crash
from simcluster.job import ClusterJob
from simcluster.runs.record import RunRecord
from tests.support import node_programs
from tests.support.socket_runs import Running, free_port, gone, hand_started, job, pids_in, wait_for

# runs that end well


@pytest.mark.parametrize("uvloop", [False, True])
@pytest.mark.parametrize("names", ["a", "abcd"])
def test_a_run_brings_home_the_record_of_every_node(names: str, uvloop: bool, tmp_path: Path) -> None:
    seen: dict[int, int] = {}
    record = run_cluster(
        job("ring", names, log_folder=tmp_path, on_progress=seen.__setitem__, options={"uvloop": uvloop})
    )
    total = float(sum(range(len(names))))
    assert record.error is None
    assert [(node.rank, node.name) for node in record.nodes] == list(enumerate(names))
    for node in record.nodes:
        assert node.weights_sha256 == f"m-{total}"
        assert [(row.node, row.step, row.name, row.value) for row in node.metrics] == [(node.name, 1, "total", total)]
        # One piece of work; then each of the n - 1 rounds sends and receives once.
        assert len(node.spans) == 1 + 2 * (len(names) - 1)
        assert node.messages_sent == len(names) - 1
        assert node.bytes_sent == node.bytes_received
        assert node.control_bytes > 0
        assert node.digest
        assert node.finished_s is not None
    assert record.elapsed_s == max(node.finished_s or 0.0 for node in record.nodes)
    assert record.wall_s >= record.elapsed_s
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.log" for name in names]


def test_a_run_can_be_started_where_a_loop_runs_already() -> None:
    async def notebook() -> RunRecord:
        return run_cluster(job("ring", "ab"))

    assert asyncio.run(notebook()).error is None


def test_a_planned_crash_that_the_algorithm_bears_is_no_error() -> None:
    record = run_cluster(job("tolerant", faults=(Crash(spells=((0.2, inf),), rank=2),)))
    assert record.error is None
    assert record.extra["lost"] == {"c": "crashed by the fault plan"}
    assert record.nodes[0].weights_sha256 == "survived"
    assert [row.value for row in record.nodes[0].metrics if row.name == "lost"] == [2.0]
    assert record.nodes[1].metrics[-1].step == 39
    assert record.nodes[2].finished_s is None


@pytest.mark.slow
def test_a_node_started_by_hand_joins_one_that_was_not(tmp_path: Path) -> None:
    key_file, port = tmp_path / "key", free_port()
    write_key(key_file, generate_key())
    options = {"rendezvous": f"127.0.0.1:{port}", "key_file": str(key_file)}
    with hand_started("b", f"127.0.0.1:{port}", key_file) as process:
        said: list[tuple[str, str]] = []
        by_hand = job("ring", "ab", addresses=[None, ("127.0.0.1", 7000)], options=options)
        record = run_cluster(replace(by_hand, on_output=lambda name, line: said.append((name, line))))
        assert process.wait() == 0
    assert said[0][0] == "launcher"
    assert said[0][1].startswith("waits up to 60 s for b, which have addresses and so are started by hand: ")
    assert f"simcluster node b --join 127.0.0.1:{port} --key-file {key_file}; " in said[0][1]
    assert record.error is None
    assert [node.weights_sha256 for node in record.nodes] == ["m-1.0", "m-1.0"]


@pytest.mark.slow
def test_a_rendezvous_that_nobody_was_asked_to_is_told() -> None:
    said: list[tuple[str, str]] = []
    here = job("ring", "ab", options={"rendezvous": f"127.0.0.1:{free_port()}"})
    assert run_cluster(replace(here, on_output=lambda name, line: said.append((name, line)))).error is None
    told = "starts all nodes here, since none has an `address`; a node started by hand replaces a lost one"
    assert said == [("launcher", told)]


# runs that end badly


def test_a_killed_worker_is_the_error_and_nothing_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reported: Counter[int] = Counter()
    running = Running(
        job(
            "forever",
            folder=tmp_path,
            on_progress=lambda rank, _: reported.update([rank]),
            options={"heartbeat_s": 0.05},
        )
    )
    pids = pids_in(tmp_path, "abc")
    # A node says how far it is, then what it noted: with the second report all of the first is there to be kept.
    wait_for(lambda: all(reported[rank] >= 2 for rank in range(3)))
    os.kill(pids["b"], signal.SIGKILL)
    record = running.result()
    assert isinstance(record.error, PeerLost)
    assert (record.error.rank, record.error.name) == (1, "b")
    assert "rank 1 (b): its process ended with exit code -9" in caplog.messages, "what ended it, which no peer can tell"
    assert all(gone(pid) for pid in pids.values())
    assert all(node.metrics for node in record.nodes), "what was noted before the loss must be kept"
    assert record.nodes[1].sent_to, "what the dead node had sent must be kept"


@pytest.mark.slow
def test_a_launcher_that_stands_still_for_longer_than_dead_s_is_not_given_up(tmp_path: Path) -> None:
    stood: list[int] = []

    def stand_still(rank: int, step: int) -> None:
        if not stood:
            stood.append(step)
            time.sleep(2.5)
            (tmp_path / "go").touch()

    options = {"heartbeat_s": 0.1, "dead_s": 1.0}
    running = Running(job("notes_and_goes_on_when_told", "ab", tmp_path, on_progress=stand_still, options=options))
    record = running.result()
    assert stood
    assert record.error is None


@pytest.mark.slow
def test_a_worker_that_falls_silent_is_lost(tmp_path: Path) -> None:
    running = Running(job("forever", folder=tmp_path, options={"heartbeat_s": 0.1, "dead_s": 3.0}))
    pids = pids_in(tmp_path, "abc")
    os.kill(pids["c"], signal.SIGSTOP)  # alive, connected, and as good as dead
    record = running.result()
    assert isinstance(record.error, PeerLost)
    assert record.error.rank == 2
    assert "silent for 3 s" in record.error.reason
    assert all(gone(pid) for pid in pids.values())


@pytest.mark.slow
def test_a_node_that_is_only_busy_is_not_taken_for_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "STOP_S", 0.3)
    running = Running(job("busy_forever", folder=tmp_path, options={"heartbeat_s": 0.1, "dead_s": 2.0, "limit_s": 3.0}))
    pids = pids_in(tmp_path, "abc")
    record = running.result()
    assert isinstance(record.error, NeverFinished)
    assert "did not finish within 3 s" in str(record.error)
    assert len(record.error.waits) == 3
    assert all(gone(pid) for pid in pids.values()), "a node that never lets go of its loop is killed"


def test_a_bug_in_one_node_is_the_error_not_the_losses_it_causes() -> None:
    record = run_cluster(job("fails"))
    assert isinstance(record.error, NodeFailed)
    assert (record.error.rank, record.error.name) == (1, "b")
    assert "LookupError: the bug of rank 1" in str(record.error)
    assert "Traceback" in record.error.details
    assert [node.metrics[0].value for node in record.nodes] == [0.0, 1.0, 2.0]


def test_a_program_that_is_not_there_is_said_to_be_missing() -> None:
    record = run_cluster(job("no_such_program", "a"))
    assert isinstance(record.error, NodeFailed)
    assert "no_such_program" in str(record.error)


def test_a_run_in_which_everybody_waits_lists_who_waits_for_what() -> None:
    record = run_cluster(job("waits_for_nothing", options={"stuck_s": 1.0, "heartbeat_s": 0.1}))
    assert isinstance(record.error, NeverFinished)
    at = node_programs.line_of(node_programs.waits_for_nothing, "node.recv(")
    assert record.error.waits == [
        f"rank 0 (a) waits for recv(source=1, tag='never') at {at}",
        f"rank 1 (b) waits for recv(source=2, tag='never') at {at}",
        f"rank 2 (c) waits for recv(source=0, tag='never') at {at}",
    ]


def test_a_run_in_which_a_tag_is_wrong_names_what_lies_unread() -> None:
    record = run_cluster(job("reads_another_tag", "ab", options={"stuck_s": 1.0, "heartbeat_s": 0.1}))
    assert isinstance(record.error, NeverFinished)
    at = node_programs.line_of(node_programs.reads_another_tag, "node.recv(")
    assert record.error.waits == [
        f"rank 0 (a) waits for recv(source=1, tag='grad') at {at}",
        f"rank 1 (b) waits for recv(source=0, tag='grad') at {at}; unread: 2 messages from rank 0 (a) with tag 'grads'",
    ]


@pytest.mark.slow
def test_a_node_that_never_lets_go_of_its_loop_ends_the_run_and_is_named_with_its_line(tmp_path: Path) -> None:
    request = job("spins", folder=tmp_path, options={"loop_s": 1.5, "heartbeat_s": 0.1})
    record = Running(request).result()
    assert isinstance(record.error, NeverFinished)
    assert "rank 1 (b) has not let go of its event loop for 1.5 s (loop_s)" in str(record.error)
    lines, first = inspect.getsourcelines(node_programs.spins)
    places = {f"{node_programs.__file__}:{first + n} (spins)" for n, text in enumerate(lines) if "while" in text}
    places |= {f"{node_programs.__file__}:{first + n} (spins)" for n, text in enumerate(lines) if "pass" in text}
    assert any(f"rank 1 (b) is at {place}, for " in record.error.waits[1] for place in places), record.error
    assert [node.metrics[0].value for node in record.nodes] == [0.0, 1.0, 2.0], "what was noted is kept"
    assert all(gone(pid) for pid in pids_in(tmp_path, "abc").values())


@pytest.mark.slow
def test_a_piece_of_work_without_an_end_ends_the_run(tmp_path: Path) -> None:
    request = job("computes_for_ever", "ab", tmp_path, options={"idle_s": 1.0, "heartbeat_s": 0.1})
    record = Running(request).result()
    assert isinstance(record.error, NeverFinished)
    assert "no work done and nothing recorded for 1 s (idle_s)" in str(record.error)
    at = node_programs.line_of(node_programs.computes_for_ever, "node.compute(")
    assert record.error.waits == [
        f"rank {rank} ({'ab'[rank]}) waits for a piece of its work at {at}" for rank in (0, 1)
    ]
    assert all(gone(pid) for pid in pids_in(tmp_path, "ab").values())


@pytest.mark.slow
def test_a_run_that_does_not_stop_at_its_time_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "GRACE_S", 0.5)
    record = Running(job("polls", "ab", tmp_path, time_s=0.7)).result()
    assert isinstance(record.error, NeverFinished)
    assert "the run did not finish within 1.2 s (limit_s)" in str(record.error)
    assert all(gone(pid) for pid in pids_in(tmp_path, "ab").values())


def test_a_run_that_is_stuck_after_a_death_ends_with_that_death(tmp_path: Path) -> None:
    running = Running(job("waits_for_the_dead", folder=tmp_path, options={"stuck_s": 1.0, "heartbeat_s": 0.1}))
    os.kill(pids_in(tmp_path, "abc")["c"], signal.SIGKILL)
    record = running.result()
    assert isinstance(record.error, PeerLost)
    assert record.error.rank == 2


@pytest.mark.parametrize(("program", "words"), [("raises_odd", "Odd: of rank 1"), ("exits", "the task of rank 1")])
def test_whatever_a_program_raises_is_the_error(program: str, words: str) -> None:
    record = Running(job(program, "ab")).result()
    assert isinstance(record.error, NodeFailed)
    assert record.error.rank == 1
    assert words in str(record.error)


def test_nodes_that_do_not_come_are_named_with_those_who_were_turned_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_s, timeout, starts = 2.125, asyncio.timeout, []

    def when_told(delay_s: float | None) -> asyncio.Timeout:
        if delay_s != start_s:
            return timeout(delay_s)
        starts.append((asyncio.get_running_loop(), timeout(None)))
        return starts[-1][1]

    monkeypatch.setattr(asyncio, "timeout", when_told)
    key_file, port = tmp_path / "key", free_port()
    write_key(key_file, generate_key())
    options = {"rendezvous": f"127.0.0.1:{port}", "key_file": str(key_file), "start_s": start_s}
    running = Running(job("ring", "ab", addresses=[None, ("127.0.0.1", 7000)], options=options))
    with pytest.raises(HandshakeRefused, match="authentication failed"):
        join("b", f"127.0.0.1:{port}", generate_key())
    with pytest.raises(HandshakeRefused, match=r"no node 'bb' in this run; did you mean 'b'\?"):
        join("bb", f"127.0.0.1:{port}", bytes.fromhex(key_file.read_text()))
    loop, start = wait_for(lambda: starts)[0]  # both strangers have been turned away: now the time is up
    loop.call_soon_threadsafe(start.reschedule, loop.time())
    error = running.result().error
    assert isinstance(error, NeverFinished)
    assert "rank 1 (b) has not joined" in error.waits
    assert any("authentication failed" in line for line in error.waits)
    assert any("no node 'bb'" in line for line in error.waits)


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    key_file, port = tmp_path / "key", free_port()
    write_key(key_file, generate_key())
    options = {"rendezvous": f"127.0.0.1:{port}", "key_file": str(key_file)}
    running = Running(job("goes_on_when_told", "ab", folder=tmp_path, options=options))
    pids_in(tmp_path, "ab")
    with pytest.raises(HandshakeRefused, match="the name 'a' is taken"):
        join("a", f"127.0.0.1:{port}", bytes.fromhex(key_file.read_text()))
    (tmp_path / "go").touch()
    assert running.result().error is None


def test_garbage_at_every_port_does_not_disturb_a_run(tmp_path: Path) -> None:
    port = free_port()
    running = Running(job("goes_on_when_told", "ab", folder=tmp_path, options={"rendezvous": f"127.0.0.1:{port}"}))
    pids = pids_in(tmp_path, "ab")
    listening = {
        connection.laddr.port
        for pid in pids.values()
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert len(listening) == 2
    silent = []
    for target in [port, *listening]:
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"simc" + b"\xff" * 500, os.urandom(1000)):
            with socket.create_connection(("127.0.0.1", target)) as client:
                client.sendall(garbage)
                try:
                    while client.recv(1000):
                        pass
                except ConnectionResetError:
                    pass
        silent.append(socket.create_connection(("127.0.0.1", target)))
    (tmp_path / "go").touch()
    record = running.result()
    for client in silent:
        client.close()
    assert record.error is None
    assert [node.weights_sha256 for node in record.nodes] == ["whole", "whole"]


def test_a_rendezvous_port_in_use_is_refused_by_its_number() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"rendezvous: found 127.0.0.1:{port} .port {port} is in use."):
            run_cluster(job("ring", "ab", options={"rendezvous": f"127.0.0.1:{port}"}))


@pytest.mark.parametrize("missing", [False, True])
def test_a_program_prepares_before_the_clock_starts(missing: bool) -> None:
    program = "tests.support.prepared_program:needs_it"
    record = run_cluster(ClusterJob(list("ab"), json.dumps({"missing": missing}), program=program))
    if missing:  # on a node's own machine, say, which nobody could check before
        assert "could not start: " in str(record.error)
        assert "the data on every node" in str(record.error)
    else:
        assert record.error is None
        assert [node.weights_sha256 for node in record.nodes] == ["prepared", "prepared"]
