"""Who gets in at a port, who does not and why, and what the log says of those who do not."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable
from typing import Any

import pytest
from simcluster_backends.sockets.net import connection as connection_module
from simcluster_backends.sockets.net.addresses import open_socket, parse_endpoint
from simcluster_backends.sockets.net.connection import Connection
from simcluster_backends.sockets.net.listener import PENDING_LIMIT, SocketListener, connect
from simcluster_backends.sockets.wire.frame import FrameKind
from simcluster_backends.sockets.wire.handshake import Handshake, PeerIdentity
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame
from simcluster_backends.sockets.wire.protocol import PROTOCOL_VERSION

from simcluster.errors import HandshakeRefused, RunError, UsageError
from simcluster.version import __version__
from simcluster.web.requests import is_loopback

KEY = b"k" * 32


class Door:
    """A listener with a key, and what it let in."""

    def __init__(self) -> None:
        self.joined: list[Connection] = []
        self.listener = SocketListener(
            lambda: Handshake(KEY, PeerIdentity("data", "a", 0), accepts=True), self.joined.append
        )

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
            lambda: Handshake(key, PeerIdentity("data", "b", 1), accepts=False, **identity),
            on_open=lambda connection: None,
            timeout_s=60.0,
        )

    async def throw(self, data: bytes) -> bytes:
        """What a client that sends *data* gets back before it is dropped."""
        reader, writer = await asyncio.open_connection(self.listener.host, self.listener.port)
        try:
            writer.write(data)
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


def test_somebody_who_knocks_for_ever_is_counted_and_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def visit(door: Door) -> list[str]:
        for number in range(23):
            await door.throw(f"garbage {number}".encode())
        await until(lambda: door.listener.dropped_count == 23)
        return door.listener.dropped_in_words

    with caplog.at_level(logging.WARNING, "simcluster.sockets"):
        words = at_the_door(visit)
    # The first five whole, the tenth with the count so far, and the count of all at the end.
    assert len(caplog.messages) == 7
    assert all("garb" in message for message in caplog.messages[:6])
    assert caplog.messages[4].endswith("; more are only counted")
    assert caplog.messages[5].startswith("10 connections dropped so far; the last one: ")
    assert caplog.messages[6] == "23 connections dropped in total before they joined"
    assert words[0] == "dropped 13 connections before these"
    assert len(words) == 1 + 10


def test_a_client_that_trickles_is_dropped_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HANDSHAKE_TIMEOUT_S", 0.2)
    hello = bytes(next(OutgoingFrame(FrameKind.HANDSHAKE, b"x" * 100).chunks(0)))

    async def visit(door: Door) -> list[str]:
        _, writer = await asyncio.open_connection(door.listener.host, door.listener.port)
        for byte in hello[:-1]:  # each byte on its own, and the frame never whole
            writer.write(bytes([byte]))
            await asyncio.sleep(0.005)
            if door.listener.dropped:
                break
        await until(lambda: door.listener.dropped_count > 0)
        writer.close()
        return list(door.listener.dropped)

    (dropped,) = at_the_door(visit)
    assert "no handshake within 0.2 s" in dropped


def test_more_strangers_than_the_limit_are_dropped_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HANDSHAKE_TIMEOUT_S", 60.0)

    async def visit(door: Door) -> None:
        strangers = [
            await asyncio.open_connection(door.listener.host, door.listener.port) for _ in range(PENDING_LIMIT)
        ]
        await until(lambda: len(door.listener._pending) == PENDING_LIMIT)
        assert await door.throw(b"") == b""  # dropped, although its time has hardly begun
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
        with pytest.raises(HandshakeRefused, match=rf"9\.9\.9.*{re.escape(__version__)}"):
            await door.knock(package="9.9.9")
        await until(lambda: len(door.listener.dropped) > 0)
        return list(door.listener.dropped)

    (dropped,) = at_the_door(visit)
    assert "9.9.9" in dropped
    assert __version__ in dropped


def test_another_version_of_the_protocol_is_refused_with_both_named() -> None:
    hello = bytearray(b"".join(map(bytes, OutgoingFrame(FrameKind.HANDSHAKE, b"x").chunks(0))))
    other = PROTOCOL_VERSION + 1
    hello[4] = other  # the version, right after the magic

    async def visit(door: Door) -> tuple[bytes, list[str]]:
        return await door.throw(bytes(hello)), list(door.listener.dropped)

    answer, (dropped,) = at_the_door(visit)
    for text in (answer.decode(errors="replace"), dropped):
        assert f"version {other} of the protocol, this side version {PROTOCOL_VERSION}" in text


def test_nobody_at_an_address_is_an_error_that_names_it() -> None:
    with open_socket("127.0.0.1", 0, "listen") as closed:
        port = closed.getsockname()[1]

    async def main() -> None:
        await connect(
            "127.0.0.1",
            port,
            lambda: Handshake(KEY, PeerIdentity("data", "b"), accepts=False),
            on_open=lambda connection: None,
            timeout_s=0.2,
        )

    with pytest.raises(RunError, match=f"no answer from 127.0.0.1:{port} within 0.2 s"):
        asyncio.run(main())


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} is in use"):
            open_socket("127.0.0.1", port, "rendezvous")


def test_an_address_that_is_not_ours_is_told_once() -> None:
    with pytest.raises(UsageError, match=r"192\.0\.2\.1:0 \([^()]*\), expected an address of this machine"):
        open_socket("192.0.2.1", 0, "listen")  # for documentation: nobody has it


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


def test_a_stranger_that_is_gone_before_its_connection_is_made_is_dropped_like_others() -> None:
    class Gone:
        """Its socket is not connected any more, which some systems tell when an option is set."""

        def get_extra_info(self, name: str) -> Any:
            return self if name == "socket" else None

        def set_write_buffer_limits(self, high: int, low: int) -> None: ...

        def fileno(self) -> int:
            return -1

        def setsockopt(self, *option: int) -> None:
            raise OSError(22, "Invalid argument")

    async def visit(door: Door) -> list[str]:
        connection = door.listener._accept()
        connection.connection_made(Gone())  # type: ignore[arg-type]
        assert connection in door.listener._pending
        connection.connection_lost(None)
        assert connection not in door.listener._pending
        return list(door.listener.dropped)

    (dropped,) = at_the_door(visit)
    assert "before it joined: the connection was closed" in dropped
