"""Replay: a real run's order, played in the simulator, gives its weights; what does not fit is told, and where."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import simcluster
from simcluster.errors import NodeFailed, NotReplayable, ReplayDiverged, UsageError
from simcluster.lab.replays.run import read_orders, replay
from simcluster.lab.replays.whatif import what_if
from simcluster.results import Run
from simcluster.runs.event_order import EventKind, EventOrder, pack
from simcluster.runs.folder import ORDER
from tests.lab.replays.__main__ import ALGORITHMS, experiment

STEPS = 8
FAST = ("edp", "ad_psgd", "async_diloco", "wild", "all_reduce_dp")
"""The last stands for those that would regroup after a loss: each node then runs under a supervisor."""
BEREFT = Path(__file__).with_name("bereft.py")
CUT_SHORT = Path(__file__).with_name("cut_short.py")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """A run over sockets of an algorithm, made once."""
    made: dict[str, Run] = {}
    folder = tmp_path_factory.mktemp("real")

    def run(name: str) -> Run:
        if name not in made:
            options = {"uvloop": False} if name == "ad_psgd" else {}  # the record is the same on both loops
            made[name] = simcluster.run(
                experiment(ALGORITHMS[name], STEPS), backend="sockets", out=folder / name, report=False, options=options
            )
        return made[name]

    return run


@pytest.fixture
def copied(real: Callable[[str], Run], tmp_path: Path) -> Run:
    """A run of edp, to be tampered with."""
    return Run(shutil.copytree(real("edp").folder, tmp_path / "copy"))


def rewrite(run: Run, change: Callable[[list[EventOrder]], object]) -> Run:
    """*run* with another order."""
    orders = read_orders(run)
    change(orders)
    packed = {
        name: [pack(order.events, order.answers, order.callbacks)]
        for name, order in zip(run.summary["nodes"], orders, strict=True)
    }
    (run.folder / ORDER).write_bytes(msgspec.msgpack.encode(packed))
    return run


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FAST else pytest.mark.exhaustive) for name in ALGORITHMS]
)
def test_a_replay_ends_with_the_weights_of_the_real_run_on_every_node(
    name: str, real: Callable[[str], Run], tmp_path: Path
) -> None:
    recorded = real(name)
    replayed = replay(recorded, out=tmp_path / "again", report=False)
    assert replayed.weights == {node: said["weights_sha256"] for node, said in recorded.summary["nodes"].items()}
    summary = replayed.run.summary
    assert (summary["backend"], summary["replay"]["matches"]) == ("sim", True)
    assert {key: summary[key] for key in ("loss", "accuracy", "messages_sent", "bytes_sent", "steps")} == {
        key: recorded.summary[key] for key in ("loss", "accuracy", "messages_sent", "bytes_sent", "steps")
    }
    # Its times are those of the events, which are known to the microsecond; the last callback comes after the last one.
    assert 0.0 < summary["elapsed_s"] <= recorded.summary["elapsed_s"] + 1e-5


def test_what_decides_an_order_is_noted(real: Callable[[str], Run]) -> None:
    orders = read_orders(real("wild"))
    kinds = {kind for order in orders for kind in order.events.kinds}
    assert kinds >= {EventKind.MESSAGE, EventKind.TIMER, EventKind.COMPUTED}
    assert all(order.answers.reads and order.answers.waited for order in orders)


def test_messages_in_another_order_are_found_out(copied: Run, tmp_path: Path) -> None:
    def swap(orders: list[EventOrder]) -> None:
        events = orders[0].events
        found = [index for index, kind in enumerate(events.kinds) if kind is EventKind.MESSAGE]
        first = found[0]
        other = next(index for index in found if events.numbers[index] != events.numbers[first])
        events.numbers[first], events.numbers[other] = events.numbers[other], events.numbers[first]

    with pytest.raises(ReplayDiverged, match=r"rank 0 \(n0\), event \d+, step \d+: message 'push' from rank"):
        replay(rewrite(copied, swap), out=tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.slow
def test_of_nodes_that_wait_for_each_other_all_are_named_whatever_their_clocks(copied: Run, tmp_path: Path) -> None:
    events = read_orders(copied)[1].events
    replies = [
        at
        for at in range(1, len(events.kinds))
        if (events.kinds[at - 1], events.kinds[at], events.numbers[at]) == (EventKind.COMPUTED, EventKind.MESSAGE, 0)
        and events.counts[at - 1] < events.counts[at]
    ]
    assert len(replies) > 4
    told: dict[float, list[str]] = {0.0: [], 1.0: [], 2.0: []}
    for ahead_s, reply in itertools.product(told, replies[2:]):
        # The reply of rank 0 now comes before the callback that sent what it answers: the two wait for each other.
        def sooner(orders: list[EventOrder], ahead_s: float = ahead_s, reply: int = reply) -> None:
            server, worker = orders[0].events, orders[1].events
            shift = worker.counts[reply] - worker.counts[reply - 1]
            worker.counts[reply:] = [count - shift for count in worker.counts[reply:]]
            server.times_s[:] = [time_s + ahead_s for time_s in server.times_s]

        changed = Run(shutil.copytree(copied.folder, tmp_path / f"{ahead_s}-{reply}"))
        with pytest.raises(ReplayDiverged) as parted:
            replay(rewrite(changed, sooner), report=False)
        told[ahead_s].append(str(parted.value))
    assert all("rank 0 (n0), event" in text and "rank 1 (n1), event" in text for text in told[0.0])
    assert told[0.0] == told[1.0] == told[2.0]


def test_a_message_from_a_rank_that_no_run_has_never_comes(copied: Run, tmp_path: Path) -> None:
    def tamper(orders: list[EventOrder]) -> None:
        events = orders[1].events
        events.numbers[events.kinds.index(EventKind.MESSAGE)] = 99

    with pytest.raises(ReplayDiverged, match=r"rank 1 \(n1\), .*a message from rank 99, which never comes"):
        replay(rewrite(copied, tamper), out=tmp_path / "again")


@pytest.mark.parametrize("change", ["later", "sooner", "without", "short"])
def test_a_record_that_does_not_fit_ends_in_an_error_that_names_node_and_event(
    change: str, copied: Run, tmp_path: Path
) -> None:
    def tamper(orders: list[EventOrder]) -> None:
        order, events = orders[1], orders[1].events
        if change in ("later", "sooner"):
            # Where others wait for the node's own last events no callback is in between: one more or less is wrong.
            by = 1 if change == "later" else -1
            events.counts[3:] = [count + by for count in events.counts[3:]]
        elif change == "without":
            index = events.kinds.index(EventKind.COMPUTED)
            for column in (events.kinds, events.counts, events.numbers, events.times_s):
                del column[index]
        else:
            order.callbacks = 5

    with pytest.raises(ReplayDiverged, match=r"rank 1 \(n1\), event \d+") as parted:
        replay(rewrite(copied, tamper), out=tmp_path / "again")
    assert (parted.value.rank, parted.value.name) == (1, "n1")


def test_another_algorithm_than_was_recorded_is_found_out(copied: Run, tmp_path: Path) -> None:
    config = yaml.safe_load((copied.folder / "config.yaml").read_text())
    config["algorithm"]["pull_interval"] = 2
    (copied.folder / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(ReplayDiverged, match="rank"):
        replay(copied.folder, out=tmp_path / "again")


def test_other_weights_are_told_with_the_first_number_that_differs(copied: Run, tmp_path: Path) -> None:
    summary = json.loads((copied.folder / "summary.json").read_text())
    summary["nodes"]["n2"]["weights_sha256"] = "0" * 64
    (copied.folder / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(ReplayDiverged, match=r"rank 2 \(n2\), its end: its weights are \w+, but 0000"):
        replay(copied.folder, out=tmp_path / "again")
    table = copied.metrics
    row = table.index[(table["node"] == "n1") & (table["name"] == "loss")][2]
    table.loc[row, "value"] += 1.0
    table.to_parquet(copied.folder / "metrics.parquet")
    with pytest.raises(ReplayDiverged, match=r"rank 2 \(n2\), step 3 of n1 \(loss [\d.]+ at step 3, recorded loss"):
        replay(copied.folder, out=tmp_path / "again")


@pytest.mark.slow
def test_a_run_that_lost_a_node_is_replayed_by_what_the_others_had_of_it(tmp_path: Path) -> None:
    crash = {"faults": [{"kind": "crash", "node": "n2", "at": "400 ms"}]}
    recorded = simcluster.run(
        experiment({"path": f"{BEREFT}:bereft"}, 1) | crash, backend="sockets", out=tmp_path / "r", report=False
    )
    assert not read_orders(recorded)[2].whole
    replayed = replay(recorded, report=False)
    assert replayed.weights == {name: recorded.summary["nodes"][name]["weights_sha256"] for name in ("n0", "n1")}
    assert replayed.run.summary["lost"] == recorded.summary["lost"] == {"n2": "crashed by the fault plan"}

    def other(orders: list[EventOrder]) -> None:
        orders[1].events.digests[-1] ^= 1

    with pytest.raises(ReplayDiverged, match=r"rank 1 \(n1\), .*: message 'count' from rank 2 has the checksum"):
        replay(rewrite(recorded, other), out=tmp_path / "again")


def test_a_run_that_failed_is_replayed_up_to_the_same_error(tmp_path: Path) -> None:
    with pytest.raises(NodeFailed, match="got") as failed:
        simcluster.run(
            experiment({"path": f"{BEREFT}:bereft", "fails": True}, 1),
            backend="sockets", out=tmp_path / "r", report=False,
        )  # fmt: skip
    replayed = replay(tmp_path / "r", report=False)
    assert replayed.run.summary["status"] == "failed"
    assert replayed.run.summary["error"]["type"] == "NodeFailed"
    assert "ValueError: rank" in str(failed.value)
    assert len(replayed.weights) == 3


@pytest.mark.slow
def test_a_step_under_way_when_a_run_fails_is_whole_in_the_weights_recorded(tmp_path: Path) -> None:
    with pytest.raises(NodeFailed, match="enough"):
        simcluster.run(
            experiment({"path": f"{CUT_SHORT}:cut_short"}, 1), backend="sockets", out=tmp_path / "r", report=False
        )
    replay(tmp_path / "r", report=False)  # raises if the weights are not those that were recorded


def test_half_an_order_is_refused_and_says_whose(copied: Run) -> None:
    orders = msgspec.msgpack.decode((copied.folder / ORDER).read_bytes())
    (copied.folder / ORDER).write_bytes(msgspec.msgpack.encode(orders | {"n1": []}))
    with pytest.raises(NotReplayable, match="an incomplete order of n1"):
        replay(copied)
    (copied.folder / ORDER).write_bytes(b"something else")
    with pytest.raises(UsageError, match="orders of nodes"):
        replay(copied)


def test_the_command_says_what_came_of_it(command: Any, copied: Run, tmp_path: Path) -> None:
    code, out, _ = command("replay", str(copied.folder), "--out", "again", "--no-report")
    assert code == 0
    assert "the same weights on 3 of 3 nodes, bit for bit" in out
    rewrite(copied, lambda orders: setattr(orders[0], "callbacks", 5))
    code, _, err = command("replay", str(copied.folder))
    assert code == 1
    assert "error: ReplayDiverged: replay and record differ at rank 0 (n0)" in err
    (copied.folder / ORDER).unlink()
    code, _, err = command("replay", str(copied.folder))
    assert code == 2
    assert f"no {ORDER}" in err


def test_what_if_keeps_the_recorded_work_and_changes_a_link(real: Callable[[str], Run]) -> None:
    recorded = real("edp")
    slow = what_if(recorded, {"topology.links.n1-sw.bandwidth": "1 Mbps"})
    compute_s = [node["compute_s"] for node in recorded.summary["nodes"].values()]
    assert slow.recorded_s == recorded.summary["elapsed_s"]
    # The same pieces of work, of which one node's never overlap; so nothing ends before the busiest has done its own.
    assert slow.unchanged_s >= slow.busiest_s - 1e-3 == pytest.approx(max(compute_s) - 1e-3)
    # n1 sends 8 gradients of 785 x 8 + 8 + 9 x 10 numbers or so, 4 bytes each: at 125 kB/s that alone takes seconds.
    sent_s = recorded.summary["nodes"]["n1"]["bytes_sent"] / 125e3
    assert slow.changed_s > sent_s > 1.0
    assert slow.changed_s > slow.unchanged_s


def test_what_if_refuses_what_is_no_change_of_links(command: Any, real: Callable[[str], Run]) -> None:
    folder = str(real("edp").folder)
    code, _, err = command("replay", folder, "--what-if", "stop.steps=3", "--what-if", "algorithm.pull_interval=2")
    assert code == 2
    assert err.count("a key of the cluster") == 2
    code, _, err = command("replay", folder, "--what-if", "topology.nodes.n0.device=raspberry-pi-4")
    assert code == 2
    assert "another device at n0" in err


def test_without_order_nothing_is_noted(tmp_path: Path) -> None:
    keys = experiment("edp", 1)
    run = simcluster.run(keys, backend="sockets", out=tmp_path / "r", report=False, options={"order": False})
    assert not (run.folder / ORDER).exists()
    with pytest.raises(NotReplayable, match="order=false"):
        replay(run)


def test_a_run_from_which_a_node_left_is_replayed_to_the_same_weights_on_that_node_too(tmp_path: Path) -> None:
    plan = {**experiment("edp", 100), "faults": [{"kind": "leave", "node": "n2", "at": "0 s"}]}
    recorded = simcluster.run(plan, backend="sockets", out=tmp_path / "real", report=False)
    assert list(recorded.summary["lost"]) == ["n2"]
    assert recorded.summary["lost"]["n2"].startswith("left at step ")
    assert [order.events.kinds.count(EventKind.TOLD) for order in read_orders(recorded)] == [0, 0, 1]
    replayed = replay(recorded, out=tmp_path / "again", report=False)
    assert replayed.weights == {node: said["weights_sha256"] for node, said in recorded.summary["nodes"].items()}
    assert len(replayed.weights) == 3


@pytest.mark.parametrize("change", ["came back", "never came"])
def test_a_run_to_which_a_node_came_late_or_again_is_refused(change: str, copied: Run) -> None:
    summary = json.loads((copied.folder / "summary.json").read_text())
    if change == "came back":
        summary["nodes"]["n1"]["incarnation"] = 1
    else:
        summary["lost"] = {"n1": "never joined"}
    (copied.folder / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(NotReplayable, match=r"n1, which joined late or rejoined.*starts, once"):
        replay(copied.folder)
