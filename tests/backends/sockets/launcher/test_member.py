"""What the launcher keeps of a node that has had several lives."""

from __future__ import annotations

from simcluster_backends.common.failure import LEFT, Failure
from simcluster_backends.sockets.launcher.node_handle import NodeHandle, together
from simcluster_backends.sockets.wire.messages import NodeOutcome, NodeStatus, OrderPiece, RecordRows

from simcluster.errors import ABSENT
from simcluster.runs.record import Metric, NodeRecord


def status(steps: int, sent: int, samples: dict[str, int]) -> NodeStatus:
    return NodeStatus(0, 0, 0, [], steps, {0: [sent, 100 * sent]}, 10 * sent, False, 0.0, "", samples)


def test_what_several_lives_have_sent_adds_up_and_the_last_one_says_how_it_ended() -> None:
    member = NodeHandle(1, "b")
    member.hear(RecordRows([Metric(0.5, 1, "b", "loss", 1.0)], []))
    member.hear(OrderPiece(b"first"))
    member.hear(status(7, 3, {"life": 1}))
    member.gone = "killed"
    member.restart()
    assert (member.incarnation, member.is_coming, member.status, member.gone) == (1, True, None, "killed")
    member.is_coming, member.gone = False, None
    member.hear(RecordRows([Metric(1.5, 1, "b", "loss", 2.0)], []))
    record = NodeRecord(1, "b", sent_to={0: [1, 50], 2: [4, 400]}, bytes_received=5, steps=2, finished_s=2.0)
    record.samples, record.weights_sha256 = [{"life": 2}], "w"
    member.hear(NodeOutcome(record, None))
    found = member.record()
    assert found.sent_to == {0: [4, 350], 2: [4, 400]}
    assert (found.bytes_received, found.steps, found.finished_s, found.weights_sha256) == (35, 7, 2.0, "w")
    assert found.samples == [{"life": 1}, {"life": 2}]
    assert [metric.value for metric in found.metrics] == [1.0, 2.0]
    assert found.order == []


def test_a_life_of_which_nothing_is_known_adds_nothing() -> None:
    lives = [NodeRecord(1, "b", incarnation=0), NodeRecord(1, "b", incarnation=1, steps=3)]
    assert together(lives) == NodeRecord(1, "b", incarnation=1, steps=3)


def test_whoever_has_not_been_there_has_no_life_before_its_first() -> None:
    member = NodeHandle(2, "c", by_hand=True)
    member.gone = ABSENT
    assert member.ended
    member.restart()
    assert member.gone == ABSENT
    assert (member.incarnation, member.before) == (1, [])


def test_others_can_connect_to_whoever_lives_or_has_ended_well_and_waits() -> None:
    member = NodeHandle(0, "a")
    assert not member.is_there
    member.connection = object()  # type: ignore[assignment]
    assert member.is_there
    member.outcome = NodeOutcome(NodeRecord(0, "a"), None)
    assert member.is_there
    assert not member.has_left
    member.outcome = NodeOutcome(NodeRecord(0, "a"), Failure(LEFT, "left at step 3"))
    assert member.has_left
    assert not member.is_there
