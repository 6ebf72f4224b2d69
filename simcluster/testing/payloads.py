"""Checks of payloads and identity: valid content arrives unchanged, and invalid content is
refused.
"""

from __future__ import annotations

import asyncio
from typing import Any

import torch

from simcluster.payload import lend, pack, sizes_of
from simcluster.testing.harness import A_MOMENT_S, RunBodies, error_of, run
from simcluster.transport import Transport


def a_payload_arrives_as_it_was_sent(run_bodies: RunBodies) -> None:
    tensors = [
        torch.arange(6, dtype=torch.float32).reshape(2, 3),
        torch.tensor(3.5, dtype=torch.float64),
        torch.zeros(0, 4),
        torch.tensor([True, False]),
        torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        torch.arange(10).reshape(2, 5).t(),
        torch.tensor([-128, 127], dtype=torch.int8),
    ]
    values: dict[str, Any] = {"step": -3, "loss": 0.1, "text": "grüße", "flag": True, "none": None}

    async def sender(node: Transport) -> None:
        await node.send(1, "all", pack(*tensors, **values))
        await node.send(1, "scalar", 7)
        await node.send(1, "nothing", None)

    async def receiver(node: Transport) -> None:
        message = await node.recv(0, "all")
        assert (message.source, message.tag) == (0, "all")
        assert dict(message.payload.values) == values, message.payload.values
        assert len(message.tensors) == len(tensors)
        for got, sent in zip(message.tensors, tensors, strict=True):
            assert got.dtype == sent.dtype
            assert got.shape == sent.shape
            assert torch.equal(got, sent)
        header, body = sizes_of("all", pack(*tensors, **values))
        assert message.size_bytes == header + body, "size_bytes must be what sizes_of says"
        assert (await node.recv(0, "scalar"))["value"] == 7
        assert (await node.recv(0, "nothing")).tensors == ()

    run(run_bodies, sender, receiver)


def a_tensor_changed_after_send_arrives_unchanged(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        weights = torch.ones(200_000)
        sending = asyncio.create_task(node.send(1, "w", weights))
        await asyncio.sleep(0)
        weights.fill_(-1.0)
        await sending
        weights.fill_(-2.0)

    async def receiver(node: Transport) -> None:
        await asyncio.sleep(A_MOMENT_S)
        message = await node.recv(0, "w")
        assert torch.equal(message.tensor, torch.ones(200_000)), "send must snapshot"
        message.tensor.add_(1.0)  # the receiver owns the tensor, so this must not affect the sender

    run(run_bodies, sender, receiver)


def a_lent_tensor_is_the_senders_again_once_it_has_left(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        weights = torch.ones(200_000)
        await node.send(1, "w", lend(weights, step=3))
        weights.fill_(-1.0)
        await node.send(1, "w", weights)

    async def receiver(node: Transport) -> None:
        await asyncio.sleep(A_MOMENT_S)
        message = await node.recv(0, "w")
        assert message["step"] == 3
        assert torch.equal(message.tensor, torch.ones(200_000)), "what was lent arrives as it was while it was lent"
        message.tensor.add_(1.0)  # the receiver owns the tensor, so this must not affect the sender
        assert torch.equal((await node.recv(0, "w")).tensor, -torch.ones(200_000))

    run(run_bodies, sender, receiver)


def what_is_lent_twice_stays_the_senders_and_what_arrives_is_the_receivers(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        weights = torch.ones(200_000)
        await node.send(1, "w", lend(weights))
        await node.send(1, "w", lend(weights))
        await node.recv(1, "changed")
        assert torch.equal(weights, torch.ones(200_000)), "a receiver has changed what was lent"

    async def receiver(node: Transport) -> None:
        first, second = await node.recv(0, "w"), await node.recv(0, "w")
        first.tensor.add_(1.0)
        assert torch.equal(second.tensor, torch.ones(200_000)), "two messages with one tensor share memory"
        await node.send(0, "changed", None)

    run(run_bodies, sender, receiver)


def what_cannot_travel_is_refused(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> None:
        other = 1 - node.rank
        for content in (object(), [object()], {"a": [1]}, torch.zeros(2, dtype=torch.complex64)):
            await error_of(TypeError, node.send(other, "bad", content), f"send took {content!r}")  # type: ignore[arg-type]
        for rank in (node.rank, node.size, -1):
            for attempt in (node.send(rank, "t", None), node.recv(rank, "t")):
                await error_of(ValueError, attempt, f"rank {rank} was accepted")
        # The refused content must have left nothing in the stream.
        await node.send(other, "good", None)
        await node.recv(other, "good")

    run(run_bodies, body, body)


def a_node_knows_rank_size_and_peers(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> tuple[int, int, list[int], str]:
        seen = (node.rank, node.size, list(node.peers), node.name)
        # Wait for all nodes: a node that ended early would vanish from the peers of the others.
        async with asyncio.TaskGroup() as group:
            for peer in seen[2]:
                group.create_task(node.send(peer, "looked", None))
                group.create_task(node.recv(peer, "looked"))
        return seen

    results = run(run_bodies, body, body, body)
    assert [result[:3] for result in results] == [(0, 3, [1, 2]), (1, 3, [0, 2]), (2, 3, [0, 1])]
    assert len({result[3] for result in results}) == 3, "node names must differ"


def generators_belong_to_one_node(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> tuple[float, float]:
        await asyncio.sleep(0)
        return float(node.rng.numpy.random()), float(torch.rand((), generator=node.rng.torch))

    first, second = run(run_bodies, body, body), run(run_bodies, body, body)
    assert first == second, "the same seed must give the same draws"
    assert first[0] != first[1], "two nodes must not share a stream"


def a_name_in_place_of_a_rank_is_refused(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> None:
        for verb in (node.send("n1", "x", None), node.recv("n1", "x")):  # type: ignore[arg-type]
            error = await error_of(TypeError, verb, "a name was taken for a rank")
            assert "rank" in str(error), f"the error does not speak of ranks: {error}"

    run(run_bodies, body, body)


def a_tag_is_text(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> None:
        other = 1 - node.rank
        for verb in (node.send(other, 5, None), node.recv(other, 5)):  # type: ignore[arg-type]
            error = await error_of(TypeError, verb, "a number was taken for a tag")
            assert "tag" in str(error), f"the error does not speak of tags: {error}"

    run(run_bodies, body, body)
