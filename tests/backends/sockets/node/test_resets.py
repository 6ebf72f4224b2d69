"""Connections that break between living nodes: nothing is lost, nothing comes twice, and the dead are still noticed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from simcluster_backends.sockets.net.certificates import make_certificates
from simcluster_backends.sockets.net.link import PeerLink
from simcluster_backends.sockets.net.tls import read_tls
from simcluster_backends.sockets.node.mesh import Mesh
from simcluster_backends.sockets.node.transport import SocketTransport

from simcluster.errors import PeerLost
from simcluster.payload import lend, pack
from tests.backends.sockets.node.test_mesh import NAMES, address, close, knocks, node, run
from tests.support.socket_cluster import run_bodies

RESETS = 100
LENGTHS = (1, 50_000, 3, 400_000, 7)  # floats: several frames in one read, and several reads for one frame


async def connected(tls: Path | None = None) -> tuple[Mesh, Mesh]:
    """Two nodes; the second one has dialled. They use the certificates in *tls*, if given."""
    a, b = [await node(rank, read_tls(tls, NAMES[rank]) if tls is not None else None) for rank in (0, 1)]
    absent = {2: "not there"}
    places = [address(a), address(b), ("", 0)]
    await asyncio.gather(a.connect(places, 10.0, absent), b.connect(places, 10.0, absent))
    return a, b


async def breaks(node: SocketTransport, peer: int, times: int) -> None:
    """Break the connection to *peer* whenever it has one and bytes have moved."""
    link, moved = node._member.links[peer], -1
    while times:
        if not link.is_broken and link.bytes_moved != moved:
            link.reset("for the test")
            moved, times = link.bytes_moved, times - 1
        await asyncio.sleep(0.001)


@pytest.mark.slow
@pytest.mark.parametrize("uvloop", [None, False], ids=["the loop there is", "asyncios own"])
@pytest.mark.parametrize("resetting", [0, 1], ids=["at the end that accepted", "at the end that dialled"])
def test_a_stream_both_ways_survives_a_hundred_resets_in_order_and_once(uvloop: bool | None, resetting: int) -> None:
    done = [False, False]

    async def body(node: SocketTransport) -> list[int]:
        other, got, sent = 1 - node.rank, [], 0
        link = node._member.links[other]

        async def send() -> None:
            nonlocal sent
            while not done[0]:
                tensor = torch.full((LENGTHS[sent % len(LENGTHS)],), float(sent % 1000))
                content = lend(tensor, number=sent) if sent % 2 else pack(tensor, number=sent)
                await node.send(other, "t", content)
                tensor.fill_(-1.0)  # it is the sender's again
                sent += 1
            await node.send(other, "t", pack(number=-1))

        async def receive() -> None:
            while (message := await node.recv(other, "t"))["number"] >= 0:
                number = message["number"]
                assert torch.equal(message.tensor, torch.full((LENGTHS[number % len(LENGTHS)],), float(number % 1000)))
                got.append(number)

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            group.create_task(receive())
            if node.rank == resetting:
                await breaks(node, other, RESETS)
                done[0] = True
        assert got == list(range(len(got)))
        return [sent, len(got), link.resets]

    first, second = run_bodies([body, body], uvloop=uvloop)
    assert first[:2] == second[1::-1], "each has received what the other has sent"
    assert max(first[2], second[2]) >= RESETS


def alive(link: PeerLink) -> bool:
    return link.is_open and not link.is_broken


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_a_new_connection_of_the_same_peer_replaces_one_whose_break_was_not_noticed_here() -> None:
    async def main() -> list[Any]:
        a, b = await connected()
        here, there = a.member.links[1], b.member.links[0]
        old = here._connection
        lost, there._connection = there._connection, None  # b has lost it, and a does not know
        assert lost is not None
        lost.pause_reading()
        lost.on_lost = lambda reason: None
        sending = asyncio.create_task(SocketTransport(a.member, 0).send(1, "t", 7))
        await b._dial_again(there)
        await sending
        value = (await SocketTransport(b.member, 0).recv(0, "t"))["value"]
        found = [value, here._connection is not old, alive(here), alive(there)]
        lost.abort("the test is over")
        await close(a, b)
        return found

    assert run(main) == [7, True, True, True]


@pytest.mark.parametrize("resetting", [0, 1], ids=["at the end that accepted", "at the end that dialled"])
def test_over_tls_a_connection_that_is_reset_is_taken_up_again_and_nothing_is_lost(
    tmp_path: Path, resetting: int
) -> None:
    make_certificates(tmp_path / "tls", NAMES, 1)

    async def main() -> list[Any]:
        a, b = await connected(tmp_path / "tls")
        here, there = a.member.links[1], b.member.links[0]
        got = []
        for number in range(5):
            (here, there)[resetting].reset("for the test")
            await SocketTransport(b.member, 0).send(0, "t", number)
            got.append((await SocketTransport(a.member, 0).recv(1, "t"))["value"])
        await until(lambda: alive(here) and alive(there))
        encrypted = here._connection is not None and here._connection._encrypted
        await close(a, b)
        return [got, encrypted, max(here.resets, there.resets) >= 1]

    assert run(main) == [[0, 1, 2, 3, 4], True, True]


def test_a_break_that_only_the_end_notices_that_had_accepted_is_mended_from_there() -> None:
    async def main() -> list[Any]:
        a, b = await connected()
        here, there = a.member.links[1], b.member.links[0]
        there._wait_s = 3600.0  # the other end does not dial
        here.reset("for the test")
        await until(lambda: here.is_broken)
        await until(lambda: alive(here) and alive(there))
        await SocketTransport(b.member, 0).send(0, "t", 7)
        value = (await SocketTransport(a.member, 0).recv(1, "t"))["value"]
        await close(a, b)
        return [value, here.resets]

    assert run(main) == [7, 1]


def test_a_peer_that_does_not_come_back_in_time_is_lost_with_the_reason_and_sends_wait_until_then() -> None:
    async def main() -> list[Any]:
        a, b = await connected()
        here, there = a.member.links[1], b.member.links[0]
        here._dead_s = 0.2
        here._dial = there._dial = None
        here.reset("unplugged")
        await until(lambda: here.is_broken)
        began_s = time.monotonic()
        assert list(a.member.inbox.peers) == [1], "a broken connection is not a dead node"
        with pytest.raises(PeerLost) as lost:
            await SocketTransport(a.member, 0).send(1, "t", 7)
        assert time.monotonic() - began_s > 0.1, "it has waited"
        with pytest.raises(PeerLost):
            await SocketTransport(a.member, 0).recv(1, "t")
        await close(a, b)
        return [lost.value.rank, lost.value.reason]

    assert run(main) == [1, "unplugged, and no other connection within 0.2 s"]


@pytest.mark.parametrize("gone", [0, 1], ids=["the end that accepted", "the end that dialled"])
def test_a_peer_whose_address_refuses_is_dead_at_once(gone: int) -> None:
    async def main() -> str:
        meshes = await connected()
        left, stays = meshes[gone], meshes[1 - gone]
        await left.listener.close()
        link = left.member.links[stays.member.rank]
        link._dial = None
        link.reset("a process that is killed with unread data")
        with pytest.raises(PeerLost) as lost:
            await SocketTransport(stays.member, 0).recv(gone, "t")
        await close(*meshes)
        return lost.value.reason

    reason = run(main)
    assert "nothing listens at 127.0.0.1" in reason
    assert "any more" in reason


def test_the_launchers_word_ends_the_wait_for_another_connection() -> None:
    async def main() -> str:
        a, b = await connected()
        here = a.member.links[1]
        here._dial = b.member.links[0]._dial = None
        here.reset("for the test")
        await until(lambda: here.is_broken)
        a.member.expect_end(1, "its process is gone", 0)
        with pytest.raises(PeerLost) as lost:
            await SocketTransport(a.member, 0).recv(1, "t")
        await close(a, b)
        return lost.value.reason

    assert run(main) == "its process is gone"


def test_impossible_numbers_other_incarnations_and_ranks_without_a_connection_may_not_resume() -> None:
    async def main() -> list[Any]:
        a, b = await connected()
        await SocketTransport(a.member, 0).send(1, "t", 7)  # one frame, not acknowledged
        answers = [
            await knocks(a, 1, 0, taken=2),
            await knocks(a, 1, 0, taken=2**62),
            await knocks(a, 1, 0, taken=-5),
            await knocks(a, 1, 1, taken=1),  # a new process in its place
            await knocks(a, 2, 0, taken=0),
        ]
        undisturbed = alive(a.member.links[1]) and a.member.links[1].resets == 0
        await close(a, b)
        return [*answers, undisturbed]

    *answers, undisturbed = run(main)
    words = [
        "taken 2 frames",
        f"taken {2**62} frames",
        "taken -5 frames",
        "in life 1 cannot resume",
        "no connection of rank 2",
    ]
    assert [word in answer for word, answer in zip(words, answers, strict=True)] == [True] * 5, answers
    assert undisturbed


def test_a_new_incarnation_is_taken_in_while_the_connection_of_the_old_one_is_broken() -> None:
    async def main() -> list[Any]:
        a, b = await connected()
        here = a.member.links[1]
        here._dial = b.member.links[0]._dial = None
        here.reset("for the test")
        await until(lambda: here.is_broken)
        again = await node(1)
        await again.come_late(1, [address(a), ("", 0), ("", 0)], {2: "not there"}, 10.0)
        transport = SocketTransport(a.member, 0)
        with pytest.raises(PeerLost) as lost:
            await transport.recv(1, "t")
        await until(lambda: 1 in transport.peers)
        await SocketTransport(again.member, 0).send(0, "t", 7)
        message = await transport.recv(1, "t")
        await close(a, b, again)
        return [lost.value.incarnation, message["value"], message.incarnation]

    assert run(main) == [0, 7, 1]


def test_resets_while_nodes_end_lose_no_last_message() -> None:
    async def ends(node: SocketTransport) -> None:
        for number in range(20):
            await node.send(1, "t", pack(torch.zeros(50_000), number=number))
        node._member.reset(1)

    async def late(node: SocketTransport) -> list[int]:
        await asyncio.sleep(0.05)
        return [(await node.recv(0, "t"))["number"] for _ in range(20)]

    assert run_bodies([ends, late], inbox_bytes=300_000)[1] == list(range(20))
