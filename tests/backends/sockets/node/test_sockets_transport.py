"""The sockets transport beside the common promises: its limits, its counts, and what the outside world sends
it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from simcluster_backends.sockets.node.transport import SocketTransport
from simcluster_backends.sockets.wire.frame import FrameKind
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame

from simcluster.errors import PeerLost
from simcluster.payload import Payload, pack, sizes_of
from simcluster.testing import CHECKS, Crash, RunBodies
from simcluster.transport import Cost
from tests.support.socket_cluster import run_bodies

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
