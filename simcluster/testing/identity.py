"""Checks of a node's identity, and that no other node shares its generators."""

from __future__ import annotations

import asyncio

import torch

from simcluster.testing.harness import RunBodies, error_of, run
from simcluster.transport import Transport


def a_node_knows_rank_size_and_peers(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> tuple[int, int, list[int], str]:
        seen = (node.rank, node.size, list(node.peers), node.name)
        # No node leaves before all have looked.
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
