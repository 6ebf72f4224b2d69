"""Checks of order and matching: messages are matched in order of arrival, and each pair of nodes
has one ordered stream.
"""

from __future__ import annotations

import asyncio

import torch

from simcluster.payload import pack
from simcluster.testing.harness import RunBodies, run
from simcluster.transport import ANY, Transport


def one_tag_arrives_in_order(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(node.send(1, "t", pack(torch.full((1 + 997 * (number % 3),), float(number)))))

    async def receiver(node: Transport) -> None:
        got = [int((await node.recv(0, "t")).tensor[0]) for _ in range(50)]
        assert got == list(range(50)), f"out of order: {got}"

    run(run_bodies, sender, receiver)


def a_later_tag_can_be_received_first(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        await node.send(1, "first", 1)
        await node.send(1, "second", 2)

    async def receiver(node: Transport) -> None:
        assert (await node.recv(0, "second"))["value"] == 2
        assert (await node.recv(0, "first"))["value"] == 1

    run(run_bodies, sender, receiver)


def any_takes_the_earliest_arrival(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        for number, tag in enumerate(["b", "a", "b", "c"]):
            await node.send(1, tag, number)
        await node.send(1, "end", None)

    async def receiver(node: Transport) -> None:
        await node.recv(0, "end")  # the stream is ordered, so the other four messages have arrived
        assert [(await node.recv(ANY, "b"))["value"], (await node.recv(0, ANY))["value"]] == [0, 1]
        assert [(await node.recv(ANY, ANY))["value"] for _ in range(2)] == [2, 3]

    run(run_bodies, sender, receiver)


def receivers_are_served_in_the_order_they_called(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        await node.recv(1, "ready")
        for number in range(4):
            await node.send(1, "t", number)

    async def receiver(node: Transport) -> None:
        tasks = [asyncio.create_task(node.recv(ANY if i % 2 else 0, "t")) for i in range(4)]
        await asyncio.sleep(0)
        await node.send(0, "ready", None)
        got = [(await task)["value"] for task in tasks]
        assert got == [0, 1, 2, 3], f"first come, first served: {got}"

    run(run_bodies, sender, receiver)


def a_large_tensor_delays_the_small_one_behind_it(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(node.send(1, "large", torch.zeros(2_000_000)))
            group.create_task(node.send(1, "small", None))

    async def receiver(node: Transport) -> None:
        assert [(await node.recv(0, ANY)).tag for _ in range(2)] == ["large", "small"]

    run(run_bodies, sender, receiver)


def everyone_to_everyone_at_once_arrives_once(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> list[int]:
        async with asyncio.TaskGroup() as group:
            for peer in node.peers:
                for number in range(5):
                    group.create_task(node.send(peer, f"{number}", pack(torch.ones(10_000), origin=node.rank)))
            tasks = [group.create_task(node.recv()) for _ in range(5 * len(node.peers))]
        return sorted(task.result()["origin"] for task in tasks)

    results = run(run_bodies, body, body, body, body)
    for rank, got in enumerate(results):
        assert got == sorted(5 * [peer for peer in range(4) if peer != rank]), f"rank {rank} got {got}"
