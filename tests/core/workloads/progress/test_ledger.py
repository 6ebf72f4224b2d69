"""What became of every sample is counted: used, lost and repeated, by hand, under faults, and on real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcluster
from simcluster.payload import Message, Payload
from simcluster.runs.record import NodeRecord
from simcluster.runs.samples import samples_of
from simcluster.workloads import quadratic
from simcluster.workloads.progress.ledger import OWN, Fate, Ledger
from simcluster.workloads.progress.ledgers import closed
from tests.support.kept import config, play, play_on

HANDED_IN, IN_HAND = int(Fate.HANDED_IN), int(Fate.IN_HAND)


def drawing(ledger: Ledger, *numbers: int) -> None:
    for number in numbers:
        ledger.draw(number)


def test_groups_of_a_kind_are_one_run() -> None:
    ledger = Ledger()
    ledger.begin(0)
    for step in range(3):
        drawing(ledger, step)
        ledger.settle(step + 1)
    drawing(ledger, 3, 4)
    ledger.settle(5)  # a round of two
    drawing(ledger, 5)
    ledger.settle(6, used=False)
    drawing(ledger, 6)
    assert ledger.notes()["runs"] == [[0, 3, 1, 1], [3, 1, 2, 1], [5, 1, 1, 0]]
    assert ledger.notes(in_hand=True)["runs"][-1] == [6, 1, 1, IN_HAND]
    ledger.end(well=False)
    assert ledger.notes()["runs"][-1] == [6, 1, 1, IN_HAND]


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=30))
def test_every_batch_is_in_one_group(groups: list[tuple[int, bool]]) -> None:
    ledger, expected, number = Ledger(), [], 0
    ledger.begin(0)
    for width, used in groups:
        drawing(ledger, *range(number, number + width))
        number += width
        ledger.settle(number, used=used)
        expected += [used] * width
    loaded = Ledger()
    loaded.load(ledger.notes())
    runs = loaded.notes()["runs"]
    assert [bool(used) for _, count, width, used in runs for _ in range(count * width)] == expected
    starts = [first + width * n for first, count, width, _ in runs for n in range(count)]
    assert starts == sorted(starts)


def test_who_never_says_anything_has_used_all_if_it_ends_well() -> None:
    for well, kept in ((True, [[0, 1, 4, 1]]), (False, [[0, 1, 4, IN_HAND]])):
        ledger = Ledger()
        ledger.begin(0)
        drawing(ledger, 0, 1, 2, 3)
        ledger.end(well=well)
        ledger.end(well=False)
        assert ledger.notes()["runs"] == kept


def life(runs: list[list[int]], incarnation: int = 0, judged: Any = (), **keys: Any) -> dict[str, Any]:
    return {**Ledger().notes(), "runs": runs, "judged": list(judged), "incarnation": incarnation, **keys}


def record(rank: int, *lives: dict[str, Any]) -> NodeRecord:
    return NodeRecord(rank, f"n{rank}", samples=list(lives))


def test_batches_become_samples_of_epochs() -> None:
    """Two ranks of 8 samples, batches of 3: the third batch has the last two of a pass and the first of the next."""
    workload = quadratic(samples=16, batch_size=3)
    found = samples_of([record(0, life([[0, 3, 1, 1]])), record(1, life([[0, 1, 1, 0]]))], workload, seed=1)
    of_first = [
        (int(epoch), int(sample))
        for epoch, sample, node in zip(*(found.columns[name] for name in ("epoch", "sample", "node")), strict=True)
        if node == "n0"
    ]
    assert [epoch for epoch, _ in of_first] == [0] * 8 + [1]
    assert {sample for epoch, sample in of_first if epoch == 0} == set(workload.shards(2, 1)[0].tolist())
    assert found.totals == {"used": 9, "lost": 3, "repeated": 0}
    batches = workload.replica(0, 2, 1, steps=3).batches()
    drawn = [row.tolist() for batch in batches for row in batch.inputs]
    assert drawn == [workload.train_samples.inputs[sample].tolist() for _, sample in of_first]


def counted(*nodes: NodeRecord) -> dict[str, int]:
    """Batches of two samples, as totals of batches."""
    totals = samples_of(nodes, quadratic(samples=64, batch_size=2), seed=0).totals
    return {name: count // 2 for name, count in totals.items()}


def test_what_a_rank_handed_in_is_used_if_the_server_took_it_and_lost_if_not() -> None:
    # Five groups were handed in, four came, all but the second were taken.
    server = record(0, life([], judged=[[1, 0, 4, [[0, 1], [2, 2]]]]))
    assert counted(server, record(1, life([[0, 5, 1, HANDED_IN]]))) == {"used": 3, "lost": 2, "repeated": 0}
    # Without a word of the server, as when all the others had ended, all is lost.
    assert counted(record(0, life([])), record(1, life([[0, 5, 1, HANDED_IN]])))["lost"] == 5


def test_a_server_judges_its_own_groups_like_those_of_others() -> None:
    server = record(0, life([[0, 3, 1, HANDED_IN]], judged=[[OWN, 0, 3, [[0, 2]]]]))
    assert counted(server, record(1, life([]))) == {"used": 2, "lost": 1, "repeated": 0}


def test_a_rank_that_begins_again_repeats() -> None:
    node = record(1, life([[0, 3, 1, 1]]), life([[0, 5, 1, 1]], 1))
    assert counted(record(0, life([[0, 5, 1, 1]])), node) == {"used": 13, "lost": 0, "repeated": 3}


def push(rank: int, incarnation: int) -> Message:
    return Message(rank, "push", Payload((), {}), 10, incarnation=incarnation)


def test_each_life_of_a_rank_is_judged_from_its_own_beginning() -> None:
    server = Ledger()
    first = [server.receive(push(1, 0)) for _ in range(2)]
    second = [server.receive(push(1, 2)) for _ in range(3)]  # it died at once in life 1: that took no notes
    server.take([second[1], first[0], second[2]])
    assert server.notes()["judged"] == [[1, 0, 2, [[0, 1]]], [1, 2, 3, [[1, 2]]]]
    lives = record(1, life([[0, 2, 1, HANDED_IN]]), life([[0, 4, 1, HANDED_IN]], 2))
    # Of the first life batch 0 was taken, of the other one 1 and 2; its fourth never came.
    found = counted(record(0, life([], judged=server.notes()["judged"])), lives)
    assert found == {"used": 3, "lost": 3, "repeated": 0}


def test_what_came_to_the_server_after_a_killed_ranks_last_words_is_counted() -> None:
    server = record(0, life([], judged=[[1, 0, 4, [[0, 4]]]]))
    said = life([[0, 2, 1, HANDED_IN], [2, 1, 1, IN_HAND]], partial=True)
    assert counted(server, record(1, said)) == {"used": 4, "lost": 0, "repeated": 0}
    # Of its first life not even a heartbeat arrived; the second pushed one group.
    server = record(0, life([], judged=[[1, 0, 2, [[0, 1]]], [1, 1, 1, [[0, 1]]]]))
    assert counted(server, record(1, life([[0, 1, 1, HANDED_IN]], 1))) == {"used": 2, "lost": 1, "repeated": 1}


def test_what_a_server_still_held_is_lost_at_the_end_of_a_run_and_used_where_it_is_resumed() -> None:
    server = Ledger()
    group = server.receive(push(1, 0))
    server.hold(group)
    books = [[life([[0, 1, 1, HANDED_IN]])]]
    assert closed([[server.notes()], *books])[1][0]["runs"] == [[0, 1, 1, 0]]
    assert closed([[server.notes()], *books], held=True)[1][0]["runs"] == [[0, 1, 1, 1]]
    server.take([group])
    assert closed([[server.notes()], *books])[1][0]["runs"] == [[0, 1, 1, 1]]


def test_in_step_all_count_by_the_rank_that_stands_for_the_run() -> None:
    """The clock stopped the run: rank 0 has ended three steps, rank 1 only two, but gave to the third; rank 2 four."""
    steps = [[[0, 3, 1, 1], [3, 1, 1, IN_HAND]], [[0, 2, 1, 1], [2, 1, 1, IN_HAND]], [[0, 4, 1, 1]]]
    nodes = [record(rank, life(runs, in_step=True)) for rank, runs in enumerate(steps)]
    assert counted(*nodes) == {"used": 9, "lost": 2, "repeated": 0}


def test_late_gradients_are_lost_as_often_as_the_server_says(tmp_path: Path) -> None:
    slow = {"topology.nodes.mini2.straggler": {"kind": "constant", "factor": 5}}
    for algorithm, settings in (("sync_ps", {"wait_for": 3}), ("k_sync", {"k": 3}), ("edp", {"max_staleness": 1})):
        found = play(config(algorithm, **settings), tmp_path, slow)
        rejected = max(m.value for m in found.nodes[0].metrics if m.name == "rejected")
        applied = max(m.value for m in found.nodes[0].metrics if m.name == "applied")
        samples = found.extra["samples"]
        assert samples["used"] == 4 * applied
        assert samples["lost"] >= 4 * rejected > 0
        columns = found.extra["columns"].columns
        assert columns["used"].sum() + columns["lost"].sum() == samples["used"] + samples["lost"]


def test_what_a_dead_node_had_in_its_hands_is_lost(tmp_path: Path) -> None:
    """edp on two ranks; one dies at half of the run, in the middle of a gradient."""
    whole = play(config("edp"), tmp_path)
    crash = {"faults": [{"kind": "crash", "node": "mini2", "at": f"{whole.elapsed_s / 2 * 1e6} us"}]}
    found = play(config("edp"), tmp_path, crash)
    pushed = [sum(m.name == "loss" for m in node.metrics) for node in found.nodes]
    columns = found.extra["columns"].columns
    of_dead = columns["node"] == found.nodes[1].name
    applied = max(m.value for m in found.nodes[0].metrics if m.name == "applied")
    assert found.extra["samples"]["used"] == 4 * applied
    assert 0 < columns["used"][of_dead].sum() <= 4 * pushed[1]
    assert columns["lost"][of_dead].sum() in (0, 4)  # the batch at work, unless the server had its gradient already
    assert found.extra["samples"]["used"] < whole.extra["samples"]["used"]


def test_resumed_asynchronous_runs_tell_what_they_do_twice(tmp_path: Path) -> None:
    """At the second checkpoint the server has taken more of the workers than these had handed in last."""
    play(config("edp"), tmp_path, {"checkpoint": {"every": 2, "keep": 9}})
    rest = play_on(tmp_path, 4)
    samples = rest.extra["samples"]
    assert samples["repeated"] > 0
    # Every batch of every rank is in the weights in the end, some of them twice.
    assert samples["used"] - samples["repeated"] + samples["lost"] == 8 * 4 * 4
    assert samples["lost"] == 0


@pytest.mark.slow
def test_real_processes_count_too(tmp_path: Path) -> None:
    """K-sync with three of four ranks: each of 4 steps takes 3 gradients of 4 samples, and somebody's is too late."""
    found = simcluster.run(config("k_sync", k=3, steps=4), backend="sockets", out=tmp_path / "real", report=False)
    samples = found.summary["samples"]
    assert samples["used"] == 4 * 3 * 4
    assert samples["lost"] > 0
    assert found.samples[["used", "lost"]].sum().to_dict() == {"used": samples["used"], "lost": samples["lost"]}
