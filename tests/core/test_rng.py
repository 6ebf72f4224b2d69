"""Streams of randomness: keyed by seed and names, the same on every machine, and nobody else's."""

from __future__ import annotations

import asyncio
from typing import Any

import torch
from simcluster_backends.sim.cluster import SimCluster

from simcluster.rng import NodeRandom, numpy_stream, torch_stream
from simcluster.topology import Device
from simcluster.topology.model.stragglers import Lognormal
from simcluster.transport import Cost, Transport
from tests.support.clusters import star


def test_a_stream_is_the_same_on_every_machine() -> None:
    # PCG64 and the hash that seeds it are specified bit by bit; a run made elsewhere must be repeatable here.
    assert numpy_stream(0, "node", "a").integers(2**32, size=3).tolist() == [363985541, 3830052057, 3737489749]
    assert torch_stream(0, "node", "a").initial_seed() == 3599374207712129319


def test_seed_and_every_name_tell_streams_apart() -> None:
    keys = [(0, "a"), (1, "a"), (0, "b"), (0, "a", "b"), (0, "ab"), (0, "b", "a"), (0,), (2**64, "a")]
    drawn = {float(numpy_stream(seed, *names).random()) for seed, *names in keys}
    assert len(drawn) == len(keys)


def test_the_two_generators_of_a_node_do_not_share_a_draw() -> None:
    alone, both = NodeRandom(3, "pi5"), NodeRandom(3, "pi5")
    both.torch.manual_seed(0)  # whatever is done to one
    assert alone.numpy.random() == both.numpy.random()
    torch_only = float(torch.rand((), generator=NodeRandom(3, "pi5").torch))
    assert torch_only == float(torch.rand((), generator=alone.torch)), "numpy's draws leave torch's alone"


def test_a_node_added_to_a_cluster_changes_nobodys_draws_and_nobodys_stragglers() -> None:
    straggler = Device("d", 1e9, straggler=Lognormal(0.5))

    async def body(node: Transport) -> tuple[float, float, float]:
        await node.compute(lambda: None, cost=Cost(1e9))
        took_s = asyncio.get_running_loop().time()
        return took_s, float(node.rng.numpy.random()), float(torch.rand((), generator=node.rng.torch))

    def results(size: int) -> list[Any]:
        return SimCluster(star(size, **{f"n{rank}": straggler for rank in range(size)}), seed=1).run([body] * size)

    assert results(2) == results(5)[:2]
    assert len(set(results(5))) == 5


def test_what_nodes_share_is_the_same_on_all_and_another_for_each_name_and_seed() -> None:
    def drawn(node: NodeRandom, *names: str) -> int:
        return int(node.shared(*names).integers(2**62))

    assert drawn(NodeRandom(3, "pi5"), "mask", "1") == drawn(NodeRandom(3, "pi4"), "mask", "1")
    assert len({drawn(NodeRandom(seed, "pi5"), "mask", name) for seed in (3, 4) for name in ("1", "2")}) == 4
    assert drawn(NodeRandom(3, "pi5"), "mask") != int(NodeRandom(3, "pi5").numpy.integers(2**62))
