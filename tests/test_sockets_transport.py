"""The sockets transport beside the common promises: its limits, its counts, and what the outside world sends
it.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import stat
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.sockets import connection as connection_module
from backends.sockets.connection import Connection
from backends.sockets.frame import Kind, Outgoing
from backends.sockets.handshake import Handshake, Identity
from backends.sockets.keys import generate_key, read_key, write_key
from backends.sockets.listener import (
    PENDING_LIMIT,
    Listener,
    connect,
    is_loopback,
    open_socket,
    parse_endpoint,
)
from backends.sockets.local import run_bodies
from backends.sockets.settings import read_options
from backends.sockets.transport import SocketTransport
from simcluster.errors import HandshakeRefused, PeerLost, RunError, UsageError
from simcluster.experiment import fault_kinds
from simcluster.experiment.job import ClusterJob
from simcluster.payload import Payload, pack, sizes_of
from simcluster.testing import CHECKS, Crash, RunBodies
from simcluster.transport import ANY, Cost

KEY = b"k" * 32


def run(*bodies: Any, **settings: Any) -> list[Any]:
    results = run_bodies(bodies, timeout_s=20.0, **settings)
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
        node.lose(1, "for the test")  # the exception is set on the waiting recv,
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
        assert node.peers == []
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
        node._body_limit_bytes = 100
        with pytest.raises(ValueError, match="104 bytes of tensors, at most 100"):
            await node.send(other, "t", torch.zeros(26))
        await node.send(other, "t", torch.zeros(25))
        await node.recv(other, "t")

    run(body, body)


def test_work_that_raises_stop_iteration_does_not_hang() -> None:
    async def body(node: SocketTransport) -> None:
        with pytest.raises(RuntimeError):
            await node.compute(next, iter(()), cost=Cost(1.0))
        assert node.computing == 0

    run(body)


def test_a_peer_that_breaks_the_protocol_is_lost_and_the_others_go_on() -> None:
    async def breaks(node: SocketTransport) -> None:
        node._links[1].put(Outgoing(Kind.CONTROL))
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


# strangers at the door


class Door:
    """A listener with a key, and what it let in."""

    def __init__(self) -> None:
        self.joined: list[Connection] = []
        self.listener = Listener(lambda: Handshake(KEY, Identity("data", "a", 0), accepts=True), self.joined.append)

    async def __aenter__(self) -> Door:
        await self.listener.start(open_socket("127.0.0.1", 0, "listen"))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.listener.close()
        for connection in self.joined:
            await connection.end()

    async def knock(self, *, key: bytes = KEY, **identity: Any) -> Connection:
        return await connect(
            self.listener.host,
            self.listener.port,
            lambda: Handshake(key, Identity("data", "b", 1), accepts=False, **identity),
            on_open=lambda connection: None,
            timeout_s=2.0,
        )

    async def throw(self, data: bytes) -> bytes:
        """What a client that sends *data* gets back before it is dropped."""
        reader, writer = await asyncio.open_connection(self.listener.host, self.listener.port)
        try:
            writer.write(data)
            async with asyncio.timeout(5.0):
                return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def at_the_door(visit: Callable[[Door], Any]) -> Any:
    async def main() -> Any:
        async with Door() as door:
            return await visit(door)

    return asyncio.run(main())


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 300, b"simc" + b"\xff" * 300, b"\x16\x03\x01" + b"x" * 600],
)
def test_garbage_is_dropped_at_once_and_the_next_node_still_gets_in(garbage: bytes) -> None:
    async def visit(door: Door) -> None:
        await door.throw(garbage)
        connection = await door.knock()
        assert connection.peer.name == "a"
        await connection.end()
        assert len(door.joined) == 1
        assert len(door.listener.dropped) == 1

    at_the_door(visit)


def test_a_client_that_says_nothing_is_dropped_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HANDSHAKE_TIMEOUT_S", 0.1)

    async def visit(door: Door) -> list[str]:
        assert await door.throw(b"sim") == b""
        return list(door.listener.dropped)

    (dropped,) = at_the_door(visit)
    assert "no handshake within 0.1 s" in dropped


def test_more_strangers_than_the_limit_are_dropped_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def visit(door: Door) -> None:
        strangers = [
            await asyncio.open_connection(door.listener.host, door.listener.port) for _ in range(PENDING_LIMIT)
        ]
        await until(lambda: len(door.listener._pending) == PENDING_LIMIT)
        assert await door.throw(b"") == b""  # dropped, although its five seconds have hardly begun
        strangers[0][1].close()
        connection = await door.knock()  # a place is free again, and connect tries until there is one
        await connection.end()
        for _, writer in strangers:
            writer.close()

    at_the_door(visit)


def test_a_wrong_key_is_refused_on_both_sides() -> None:
    async def visit(door: Door) -> list[str]:
        with pytest.raises(HandshakeRefused, match="authentication failed"):
            await door.knock(key=b"x" * 32)
        await until(lambda: len(door.listener.dropped) > 0)
        return list(door.listener.dropped)

    (dropped,) = at_the_door(visit)
    assert "authentication failed" in dropped


def test_another_version_of_the_package_is_refused_with_both_named_on_both_sides() -> None:
    async def visit(door: Door) -> list[str]:
        with pytest.raises(HandshakeRefused, match=r"9\.9\.9.*0\.1\.0"):
            await door.knock(package="9.9.9")
        return list(door.listener.dropped)

    (dropped,) = at_the_door(visit)
    assert "9.9.9" in dropped
    assert "0.1.0" in dropped


def test_another_version_of_the_protocol_is_refused_with_both_named() -> None:
    hello = bytearray(b"".join(map(bytes, Outgoing(Kind.HANDSHAKE, b"x").chunks(0))))
    hello[4] = 7  # the version, right after the magic

    async def visit(door: Door) -> tuple[bytes, list[str]]:
        return await door.throw(bytes(hello)), list(door.listener.dropped)

    answer, (dropped,) = at_the_door(visit)
    for text in (answer.decode(errors="replace"), dropped):
        assert "version 7" in text
        assert "this node 1" in text


def test_nobody_at_an_address_is_an_error_that_names_it() -> None:
    with open_socket("127.0.0.1", 0, "listen") as closed:
        port = closed.getsockname()[1]

    async def main() -> None:
        await connect(
            "127.0.0.1",
            port,
            lambda: Handshake(KEY, Identity("data", "b"), accepts=False),
            on_open=lambda connection: None,
            timeout_s=0.2,
        )

    with pytest.raises(RunError, match=f"no answer from 127.0.0.1:{port} within 0.2 s"):
        asyncio.run(main())


# what may be asked for


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} is in use"):
            open_socket("127.0.0.1", port, "rendezvous")


def test_an_ipv6_address_can_be_listened_at() -> None:
    assert parse_endpoint("[::1]:70", "listen") == ("::1", 70)
    try:
        opened = open_socket("::1", 0, "listen")
    except UsageError:
        pytest.skip("this machine has no IPv6")
    with opened:
        assert opened.getsockname()[0] == "::1"


@pytest.mark.parametrize("text", ["", "7000", "host:", ":7000", "host:70000", "::1:70", "host:-1", "host:x"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="host:port"):
        parse_endpoint(text, "rendezvous")


def test_only_addresses_of_this_machine_are_loopback() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("10.0.0.1", "0.0.0.0", "::", "example")] == [False] * 4


def test_a_key_file_is_read_back_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path, key = tmp_path / "key", generate_key()
    write_key(path, key)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_key(path) == key
    with pytest.raises(UsageError):
        write_key(path, key)
    for mode in (0o640, 0o604, 0o660):
        path.chmod(mode)
        with pytest.raises(UsageError, match=f"mode {mode:04o}, expected mode 0600"):
            read_key(path)


def test_a_key_may_be_base64_and_must_be_long_enough(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_text("a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=\n")  # 32 times k
    assert read_key(path) == KEY
    for text in ("6b" * 31, "not a key!", ""):
        path.write_text(text)
        with pytest.raises(UsageError, match="32") as error:
            read_key(path)
        assert "6b6b6b" not in str(error.value), "an error must not show the key"


def test_all_wrong_options_are_named_at_once() -> None:
    job = ClusterJob(
        ["a", "b", "a"],
        "{}",
        addresses=[None],
        faults=(fault_kinds.Crash(spells=((1.0, inf),), rank=7), fault_kinds.Restart(spells=((1.0, 2.0),), rank=0)),
        options={"heartbeat": 1, "stuck_s": -1, "start_s": "soon", "rendezvous": "10.0.0.1:0", "uvloop": 3},
    )
    with pytest.raises(UsageError) as error:
        read_options(job)
    assert sorted(problem.key for problem in error.value.problems) == sorted(
        [
            "heartbeat",
            "start_s",
            "uvloop",
            "stuck_s",
            "rendezvous",
            "names",
            "addresses",
            "faults.0.node",
            "faults.1.kind",
        ]
    )
    assert "did you mean 'heartbeat_s'?" in str(error.value)


@pytest.mark.parametrize(
    ("host", "why"),
    [("10.1.2.3", "without a key"), ("0.0.0.0", "one address"), ("example.org", "without a key")],
)
def test_off_loopback_nothing_is_started_without_a_key(host: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_options(ClusterJob(["a"], "{}", options={"rendezvous": f"{host}:7000"}))


def test_nodes_started_by_hand_need_a_key_file() -> None:
    with pytest.raises(UsageError, match="key_file"):
        read_options(ClusterJob(["a", "b"], "{}", addresses=[None, ("127.0.0.1", 7000)]))
