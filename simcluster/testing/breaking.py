"""Checks of resets: connections that break between living nodes only delay messages.

Here, *run_bodies* also breaks the connections of all nodes again and again while the bodies run.
"""

from __future__ import annotations

import asyncio

import torch

from simcluster.payload import lend, pack
from simcluster.testing.harness import A_MOMENT_S, RunBodies, run
from simcluster.transport import Transport

MESSAGES = 120
# Numbers of floats: some messages fit into one packet, and some break in the middle.
LENGTHS = (1, 3000, 2, 90_000)


def each_message_arrives_once_and_in_order_over_connections_that_break(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> None:
        async def send(to: int) -> None:
            for number in range(MESSAGES):
                tensor = torch.full((LENGTHS[number % len(LENGTHS)],), float(number))
                await node.send(to, "t", lend(tensor, number=number) if number % 3 else pack(tensor, number=number))
                tensor.fill_(-1.0)
                if number % 10 == 0:
                    await asyncio.sleep(A_MOMENT_S / 10)
            await node.send(to, "end", None)

        async def receive(source: int) -> None:
            for number in range(MESSAGES):
                message = await node.recv(source, "t")
                assert message["number"] == number, f"message {message['number']} of {source}, expected {number}"
                expected = torch.full((LENGTHS[number % len(LENGTHS)],), float(number))
                assert torch.equal(message.tensor, expected), f"message {number} of {source} has been changed"
            await node.recv(source, "end")

        async with asyncio.TaskGroup() as group:
            for peer in node.peers:
                group.create_task(send(peer))
                group.create_task(receive(peer))

    run(run_bodies, body, body, body)


def a_node_that_ends_has_sent_everything_over_connections_that_break(run_bodies: RunBodies) -> None:
    async def leaves(node: Transport) -> None:
        for number in range(MESSAGES):
            await node.send(1, "t", pack(torch.zeros(10_000), number=number))

    async def stays(node: Transport) -> None:
        await asyncio.sleep(A_MOMENT_S)
        got = [(await node.recv(0, "t"))["number"] for _ in range(MESSAGES)]
        assert got == list(range(MESSAGES)), f"lost, repeated or reordered: {got}"

    run(run_bodies, leaves, stays)
