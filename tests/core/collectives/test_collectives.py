"""Rings on networks that they share, by hand; and vectors of tensors. test_collectives_sums.py has the schedules."""

from __future__ import annotations

import pytest
import torch

from simcluster.collectives import flatten, ring_all_reduce, unflatten
from simcluster.topology import Link, Node, Topology
from simcluster.transport import Transport
from tests.support.clusters import IDEAL, chain, now, run

B = 125e6


def test_two_ring_neighbours_behind_one_link_take_what_was_computed_by_hand() -> None:
    # n0 and n1 hang on switch s, which one link of B joins to t, where n2 and n3 hang. In the ring 0-1-2-3 only 1 -> 2
    # (over s-t) and 3 -> 0 (over t-s) cross it, one each way: no sharing. In the ring 0-2-1-3, ranks renamed, all four
    # steps cross: two flows each way share B, and every one of the 6 rounds takes M/4 at B/2.
    nodes = {f"n{i}": Node(f"n{i}", IDEAL) for i in range(4)} | {"s": Node("s"), "t": Node("t")}

    def joined(order: list[int]) -> Topology:
        ends = ["s", "s", "t", "t"]
        links = tuple(Link(f"n{i}", ends[order[i]], 4 * B, 0.0) for i in range(4))
        return Topology("two-switches", nodes, (*links, Link("s", "t", B, 0.0)))

    async def body(node: Transport) -> float:
        await ring_all_reduce(node, torch.ones(400_000), "t")
        return now()

    chunk_s = 400_000 / B  # M/4 = 400 kB
    for order, rounds in (([0, 1, 2, 3], 6), ([0, 2, 1, 3], 12)):
        assert run(joined(order), *[body] * 4) == pytest.approx([rounds * chunk_s] * 4, rel=1e-9)


def test_a_ring_through_a_chain_shares_the_way_back() -> None:
    # n0-n1-n2: 0->1 and 1->2 have a link each; 2->0 takes both, the other way: full duplex, so nothing is shared.
    async def body(node: Transport) -> float:
        await ring_all_reduce(node, torch.ones(3000), "t")
        return now()

    assert run(chain(3, B, 0.0), *[body] * 3) == pytest.approx([4 * 4000 / B] * 3, rel=1e-9)


def test_flat_and_back_is_the_same() -> None:
    tensors = [torch.rand(2, 3), torch.rand(()), torch.rand(0), torch.rand(4)]
    back = unflatten(flatten(tensors), tensors)
    assert all(torch.equal(a, b) for a, b in zip(tensors, back, strict=True))
    assert flatten(tensors).shape == (11,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pieces_without_values_have_the_form_of_those_with_values(dtype: torch.dtype) -> None:
    like = [torch.rand(2, 3), torch.rand(()), torch.rand(0), torch.rand(4, 3).T]
    without = [tensor.to("meta") for tensor in like]
    vector = torch.zeros(19, dtype=dtype)
    forms = [
        [(tensor.shape, tensor.dtype, tensor.stride()) for tensor in pieces]
        for pieces in (unflatten(vector, like), unflatten(vector.to("meta"), without))
    ]
    assert forms[0] == forms[1]
    pieces = unflatten(torch.empty(6, device="meta"), without[:1])
    pieces[0].resize_(6)
    assert without[0].shape == (2, 3)
    with pytest.raises(RuntimeError):
        unflatten(torch.empty(7, device="meta"), without[:1])
