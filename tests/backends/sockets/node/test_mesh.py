"""Connections between nodes that come late or come back: fenced by incarnation, and without waiting for the dead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from simcluster_backends.sockets.net.addresses import open_socket
from simcluster_backends.sockets.net.connection import Connection
from simcluster_backends.sockets.net.listener import connect
from simcluster_backends.sockets.net.tls import Tls
from simcluster_backends.sockets.node.member import SocketMember
from simcluster_backends.sockets.node.mesh import Mesh
from simcluster_backends.sockets.node.shutdown_notice import seen_off
from simcluster_backends.sockets.node.transport import SocketTransport
from simcluster_backends.sockets.wire.handshake import NEW, Handshake, PeerIdentity

from simcluster.errors import ABSENT, ENDED, HandshakeRefused, PeerLost
from simcluster.runs.recorder import Recorder
from tests.support.socket_cluster import run_bodies

KEY, RUN, NAMES = b"k" * 32, b"r" * 16, ["a", "b", "c"]


async def node(rank: int, tls: Tls | None = None) -> Mesh:
    member = SocketMember(rank, NAMES, Recorder(rank, NAMES[rank], lambda: 0.0))
    mesh = Mesh(member, KEY, RUN, b"", tls=tls)
    await mesh.listener.start(open_socket("127.0.0.1", 0, "test"))
    return mesh


def address(mesh: Mesh) -> tuple[str, int]:
    return mesh.listener.host, mesh.listener.port


async def close(*meshes: Mesh) -> None:
    for mesh in meshes:
        await mesh.listener.close()
        await mesh.member.close()


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    async def awaited() -> Any:
        return await main()

    return asyncio.run(awaited())


async def knocks(at: Mesh, rank: int, incarnation: int, name: str | None = None, taken: int = NEW) -> str:
    """The answer to a holder of the key that claims to be this incarnation of *rank*, and to have *taken* frames."""
    opened: list[Connection] = []
    me = PeerIdentity("data", name or NAMES[rank], rank, RUN, b"", incarnation, taken)
    try:
        await connect(*address(at), lambda: Handshake(KEY, me, accepts=False), on_open=opened.append, timeout_s=60.0)
    except HandshakeRefused as refused:
        return str(refused)
    finally:
        for connection in opened:
            await connection.end(grace_s=0.0)
    return "welcome"


def test_only_a_later_incarnation_than_any_before_is_let_in() -> None:
    async def main() -> list[str]:
        a, b = await node(0), await node(1)
        absent = {2: ABSENT}
        places = [address(a), address(b), ("", 0)]
        await asyncio.gather(a.connect(places, 10.0, absent), b.connect(places, 10.0, absent))
        answers = [
            await knocks(a, 1, 0),  # the one that is there
            await knocks(a, 1, 2),
            await knocks(a, 1, 1),  # an earlier one, that was thought dead
            await knocks(a, 1, 2),  # the same one again
            await knocks(a, 0, 1),  # a itself
            await knocks(a, 2, 3, name="b"),
            await knocks(b, 2, 0),  # comes late, and claims to begin with the run
            await knocks(b, 0, 0),
        ]
        await close(a, b)
        return answers

    answers = run(main)
    verdicts = ["taken", "welcome", "taken", "taken", *["no peer"] * 4]
    assert [word in answer for word, answer in zip(verdicts, answers, strict=True)] == [True] * 8, answers


def test_nobody_waits_for_a_peer_that_dies_while_it_is_being_connected_to() -> None:
    async def main() -> dict[int, str]:
        a = await node(0)
        b = await node(1)
        with open_socket("127.0.0.1", 0, "test") as nobody:
            dead = nobody.getsockname()[:2]
        coming = asyncio.create_task(b.come_late(1, [address(a), ("", 0), dead], {}, timeout_s=25.0))
        while not b.member.links:
            await asyncio.sleep(0.01)
        b.lose(2, "died meanwhile")
        await coming
        lost = dict(b.member.inbox.lost)
        await close(a, b)
        return lost

    assert run(main) == {2: "died meanwhile"}


def test_a_peer_that_is_lost_before_a_late_comer_connects_is_not_waited_for_either() -> None:
    async def main() -> tuple[list[int], dict[int, str]]:
        a, b = await node(0), await node(1)
        with open_socket("127.0.0.1", 0, "test") as unheard:  # of a process that is gone: connections are refused
            dead = unheard.getsockname()[:2]
        await a.connect([address(a), ("", 0), ("", 0)], 10.0, {1: ABSENT, 2: ABSENT})
        b.lose(2, "died just now")
        await b.come_late(1, [address(a), ("", 0), dead], {}, timeout_s=25.0)
        found = list(b.member.inbox.peers), dict(b.member.inbox.lost)
        await close(a, b)
        return found

    assert run(main) == ([0], {2: "died just now"})


def test_whoever_comes_is_told_of_the_dead_once_and_of_those_who_have_not_come_not_at_all() -> None:
    async def main() -> tuple[list[int], bool, bool]:
        a, b = await node(0), await node(1)
        await b.come_late(1, [address(a), ("", 0), ("", 0)], {2: "died before"}, 10.0)
        told = b.member.inbox.has_told(2)
        c = await node(2)
        await c.come_late(1, [address(a), ("", 0), ("", 0)], {1: ABSENT}, 10.0)
        found = list(b.member.inbox.peers), told, c.member.inbox.has_told(1)
        await close(a, b, c)
        return found

    assert run(main) == ([0], False, True)


def test_a_send_to_one_that_had_ended_and_gone_before_one_came_passes_as_to_any_that_has_ended() -> None:
    async def main() -> str:
        a, b = await node(0), await node(1)
        await b.come_late(1, [address(a), ("", 0), ("", 0)], {2: ENDED}, 10.0)
        await SocketTransport(b.member, 0).send(2, "t", None)
        with pytest.raises(PeerLost) as lost:
            await SocketTransport(b.member, 0).recv(2, "t")
        await close(a, b)
        return lost.value.reason

    assert run(main) == ENDED


def test_one_that_comes_at_the_very_moment_in_which_a_peer_ends_is_told_of_that_end() -> None:
    async def main() -> str:
        a, b = await node(0), await node(1)
        await a.connect([address(a), ("", 0), ("", 0)], 10.0, {1: ABSENT, 2: ABSENT})
        attach = a.member.attach

        def attach_and_end(rank: int, connection: Connection) -> None:
            attach(rank, connection)
            a.member.finish()

        a.member.attach = attach_and_end
        await b.come_late(1, [address(a), ("", 0), ("", 0)], {2: ENDED}, 10.0)
        with pytest.raises(PeerLost) as lost:
            async with asyncio.timeout(60):
                await SocketTransport(b.member, 0).recv(0, "t")
        await close(a, b)
        return lost.value.reason

    assert run(main) == ENDED


def test_whoever_leaves_is_lost_for_its_reason_after_all_that_it_sent() -> None:
    async def leaves(node: SocketTransport) -> None:
        for number in range(3):
            await node.send(0, "t", number)
        node._member.finish("left at step 3")
        await seen_off(node._member.links.values())

    async def stays(node: SocketTransport) -> list[Any]:
        got = [(await node.recv(1, "t"))["value"] for _ in range(3)]
        for verb in (node.recv(1, "t"), node.send(1, "t", None)):
            with pytest.raises(PeerLost) as lost:
                await verb
            got.append(lost.value.reason)
        return got

    assert run_bodies([stays, leaves])[0] == [0, 1, 2, "left at step 3", "left at step 3"]
