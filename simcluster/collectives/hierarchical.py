"""Hierarchical collectives: a site's sum crosses the slow links between sites once, instead of once
per rank.

The all-reduce of M bytes is a ring inside each site of m ranks; then, for each part of M/m bytes, a
ring of its owners across sites; then a ring inside each site again. Sites may differ in size; the
pieces summed across sites are split at the bounds of every site's parts.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from torch import Tensor

from simcluster.collectives.binomial import binomial_broadcast, binomial_reduce
from simcluster.collectives.flat import flatten, lengths_of
from simcluster.collectives.operators import Combine, plus
from simcluster.collectives.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from simcluster.collectives.subgroup import subgroup
from simcluster.transport import Transport

Sites = Sequence[Sequence[int]]
"""The ranks of each site, in the order of neighbours. Every rank is in exactly one site."""


async def hierarchical_all_reduce(
    node: Transport, vector: Tensor, tag: str, *, sites: Sites, combine: Combine = plus
) -> Tensor:
    """Return the sum of every rank's *vector* (1-D, equal length), with the same bits on all
    ranks.
    """
    site = site_of(node, sites)
    inside = subgroup(node, site)

    # Inside the site, each rank sums one part.
    mine = await ring_reduce_scatter(inside, vector, f"{tag}/scatter", combine=combine)
    first = _bounds(len(vector), len(site))[inside.rank]

    # Across sites, the owners of each piece sum the piece.
    async with asyncio.TaskGroup() as group:
        bounds = [_bounds(len(vector), len(members)) for members in sites]
        for start, stop in pairwise(sorted({bound for its in bounds for bound in its})):
            owners = [members[bisect_right(its, start) - 1] for members, its in zip(sites, bounds, strict=True)]
            if node.rank in owners and len(owners) > 1:
                piece = mine[start - first : stop - first]
                group.create_task(_sum_into(subgroup(node, owners), piece, f"{tag}/across{start}", combine))

    # Inside the site, gather the parts.
    return flatten(await ring_all_gather(inside, mine, f"{tag}/gather"))


async def hierarchical_broadcast(
    node: Transport, tensors: Sequence[Tensor], tag: str, root: int, *, sites: Sites
) -> list[Tensor]:
    """Return the *tensors* of rank *root* on every rank. They pass down a binomial tree across
    sites and then one inside each site.
    """
    leaders, site, leader = _leaders(node, sites, root)
    if node.rank == leader:
        tensors = await binomial_broadcast(subgroup(node, leaders), tensors, f"{tag}/across", leaders.index(root))
    return await binomial_broadcast(subgroup(node, site), tensors, f"{tag}/inside", site.index(leader))


async def hierarchical_reduce(
    node: Transport, vector: Tensor, tag: str, root: int, *, sites: Sites, combine: Combine = plus
) -> Tensor | None:
    """Return the sum of every rank's *vector* on rank *root*, and None on the other ranks.

    Sum inside sites first, then across sites.
    """
    leaders, site, leader = _leaders(node, sites, root)
    total = await binomial_reduce(subgroup(node, site), vector, f"{tag}/inside", site.index(leader), combine=combine)
    if total is None:
        return None
    return await binomial_reduce(subgroup(node, leaders), total, f"{tag}/across", leaders.index(root), combine=combine)


def site_of(node: Transport, sites: Sites) -> list[int]:
    """Return the ranks at this node's site.

    Raise ValueError unless each rank is at one site and no site is empty.
    """
    ranks = sorted(rank for site in sites for rank in site)
    if ranks != list(range(node.size)) or not all(sites):
        given = [list(site) for site in sites]
        raise ValueError(f"sites {given}: expected each of 0 to {node.size - 1} at one of them")
    return next(list(site) for site in sites if node.rank in site)


def _leaders(node: Transport, sites: Sites, root: int) -> tuple[list[int], list[int], int]:
    """Return (the leader of each site, the ranks of this node's site, its leader). *root* leads its
    own site.
    """
    site = site_of(node, sites)
    leaders = [root if root in members else members[0] for members in sites]
    return leaders, site, next(leader for leader in leaders if leader in site)


async def _sum_into(owners: Transport, piece: Tensor, tag: str, combine: Combine) -> None:
    piece.copy_(await ring_all_reduce(owners, piece, tag, combine=combine))


def _bounds(length: int, parts: int) -> list[int]:
    """Return the bounds of the *parts* that `tensor_split` makes: the start of each part, and the
    end of the last one.
    """
    return [0, *accumulate(lengths_of(length, parts))]
