"""The sockets transport beside the common promises: its limits, its counts, and what the outside world sends
it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from simcluster_backends.sockets.local import run_bodies
from simcluster_backends.sockets.node.transport import SocketTransport
from simcluster_backends.sockets.wire.frame import FrameKind
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame

from simcluster.errors import PeerLost
from simcluster.payload import Payload, pack, sizes_of
from simcluster.testing import CHECKS, Crash, RunBodies
from simcluster.transport import ANY, Cost, Transport

KEY = b"k" * 32


def run(*bodies: Any, **settings: Any) -> list[Any]:
    results = run_bodies(bodies, **settings)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, Crash):
            raise result
    return results


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_promise_holds_on_asyncios_own_loop_too(check: Callable[[RunBodies], None]) -> None:
    check(functools.partial(run_bodies, uvloop=False))


def test_bytes_and_spans_are_counted_as_the_payload_says() -> None:
    contents: list[Payload] = [
        pack(),
        pack(torch.zeros(3, 5), step=2),
        pack(torch.ones(70_000), torch.tensor(1)),
    ]
    # What sizes_of says of each: preamble and header, and the tensors' bytes.
    total = sum(sum(sizes_of("t", content)) for content in contents)

    async def sender(node: SocketTransport) -> Any:
        for content in contents:
            await node.send(1, "t", content)
        return node.recorder.record

    async def receiver(node: SocketTransport) -> Any:
        for _ in contents:
            await node.recv(0, "t")
        await node.compute(lambda: None, cost=Cost(1.0))
        return node.recorder.record

    sent, received = run(sender, receiver)
    assert sent.sent_to == {1: [3, total]}
    assert received.bytes_received == total
    assert [(span.kind, span.peer, span.tag) for span in sent.spans] == [("send", 1, "t")] * 3
    assert [(span.kind, span.peer, span.tag) for span in received.spans] == [("recv", 0, "t")] * 3 + [
        ("compute", -1, "")
    ]
    assert sum(span.size_bytes for span in sent.spans) == total
    assert all(0 <= span.start_s <= span.end_s for span in sent.spans + received.spans)


def test_a_loss_told_to_a_cancelled_recv_is_told_to_the_next() -> None:
    async def waiter(node: SocketTransport) -> int:
        waiting = asyncio.create_task(node.recv(ANY, "never"))
        await asyncio.sleep(0)
        node._member.lose(1, "for the test")  # the exception is set on the waiting recv,
        waiting.cancel()  # which is cancelled before it can raise it
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        with pytest.raises(PeerLost) as lost:
            await node.recv(ANY, "never")
        await node.recv(2, "end")
        return lost.value.rank

    async def silent(node: SocketTransport) -> None:
        await asyncio.sleep(0)

    async def ender(node: SocketTransport) -> None:
        await node.send(0, "end", None)

    assert run(waiter, silent, ender)[0] == 1


def test_recv_from_any_ends_when_nobody_is_left() -> None:
    async def waiter(node: SocketTransport) -> str:
        with pytest.raises(PeerLost) as lost:
            await node.recv()
        assert not node.peers
        return lost.value.reason

    async def leaver(node: SocketTransport) -> None:
        await asyncio.sleep(0)

    assert run(waiter, leaver, leaver)[0] == "ended its algorithm"


def test_what_a_node_sent_before_it_ended_is_received_after_its_end() -> None:
    async def leaver(node: SocketTransport) -> None:
        for number in range(20):
            await node.send(1, "t", pack(torch.zeros(50_000), number=number))

    async def late(node: SocketTransport) -> list[int]:
        await asyncio.sleep(0.1)
        return [(await node.recv(0, "t"))["number"] for _ in range(20)]

    # 20 messages of 200 kB, in an inbox of 300 kB: most wait in the kernel, and the goodbye behind them.
    assert run(leaver, late, inbox_bytes=300_000)[1] == list(range(20))


def test_what_has_no_bytes_or_too_many_is_not_sent() -> None:
    async def body(node: SocketTransport) -> None:
        other = 1 - node.rank
        with pytest.raises(TypeError, match="meta"):
            await node.send(other, "t", torch.zeros(3, device="meta"))
        with pytest.raises(TypeError, match="sparse"):
            await node.send(other, "t", torch.zeros(3).to_sparse())
        with pytest.raises(ValueError, match="header of"):
            await node.send(other, "t" * 70_000, None)
        node._message_limits = [100, 100]
        with pytest.raises(ValueError, match="104 bytes of tensors, at most 100"):
            await node.send(other, "t", torch.zeros(26))
        await node.send(other, "t", torch.zeros(25))
        await node.recv(other, "t")

    run(body, body)


def test_work_that_raises_stop_iteration_does_not_hang() -> None:
    async def body(node: SocketTransport) -> None:
        with pytest.raises(RuntimeError):
            await node.compute(next, iter(()), cost=Cost(1.0))
        assert node._member.device.computing == 0

    run(body)


def test_a_peer_that_breaks_the_protocol_is_lost_and_the_others_go_on() -> None:
    async def breaks(node: SocketTransport) -> None:
        node._member.links[1].put(OutgoingFrame(FrameKind.CONTROL))
        with pytest.raises(PeerLost):
            await node.recv(1, "never")
        await node.send(2, "after", None)

    async def notices(node: SocketTransport) -> str:
        with pytest.raises(PeerLost) as lost:
            await node.recv(0, "never")
        await node.send(2, "after", None)
        return lost.value.reason

    async def other(node: SocketTransport) -> None:
        await node.recv(0, "after")
        await node.recv(1, "after")

    assert run(breaks, notices, other)[1] == "a CONTROL frame on the data lane"


def test_an_exception_of_a_body_reaches_nobody_but_as_a_loss() -> None:
    async def fails(node: SocketTransport) -> None:
        await node.recv(1, "go")
        raise LookupError("mine")

    async def waits(node: SocketTransport) -> int:
        await node.send(0, "go", None)
        with pytest.raises(PeerLost) as lost:
            await node.recv(0, "never")
        return lost.value.rank

    results = run_bodies([fails, waits])
    assert isinstance(results[0], LookupError)
    assert results[1] == 0


def test_an_algorithm_is_given_the_verbs_of_the_interface_and_cannot_end_a_node() -> None:
    async def body(node: Transport) -> set[str]:
        return {name for name in dir(node) if not name.startswith("_")}

    promised = {name for name in dir(Transport) if not name.startswith("_")}
    assert run_bodies([body]) == [promised | {"exchange", "land", "recorder"}]
