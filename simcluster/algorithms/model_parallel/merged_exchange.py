"""All-to-alls that merge what concerns one token on one rank: it travels there once, and one sum travels back.

DeepSeek-AI 2024 (DeepSeek-V3), section 3.2.2, merges by machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from simcluster.algorithms.model_parallel.copy_exchange import CopyExchange
from simcluster.algorithms.model_parallel.routed_tokens import ArrivedTokens, RoutedTokens
from simcluster.algorithms.timed import timed
from simcluster.collectives import all_to_all
from simcluster.workloads.layers.experts import (
    added_copies,
    copied_rows,
    summed_copies,
    unweighted_copies,
    weighted_copies,
)

WAY_BYTES = 8
"""Size of what tells a rank of a copy: its number and its weight, in float32. See MOST_COPIES."""


def merged_tokens(tokens: int, experts: int, active: int, ranks: int, kept: float = 1.0) -> int:
    """Return how many of *tokens* reach an expert on one of the *ranks*, if all choices are equally
    likely and each copy is *kept* with this probability.
    """
    here = experts // ranks
    ways = [math.comb(here, j) * math.comb(experts - here, active - j) for j in range(min(here, active) + 1)]
    elsewhere = sum(number * (1 - kept) ** j for j, number in enumerate(ways)) / math.comb(experts, active)
    return round(tokens * (1 - elsewhere))


class MergedExchange(CopyExchange):
    """All-to-alls in which a token travels to a rank once, and the sum of its outputs there back.

    Outputs are added by rank, and then over ranks, both in order.
    """

    async def dispatch(self, routed: RoutedTokens, tokens: Tensor, tag: str) -> list[Tensor]:
        """Send *tokens* to the ranks of their experts; return the copies that come from each rank."""
        leaving = torch.split(routed.index, self.leaving(routed))
        weights = routed.weights.flatten()
        sent = [self._distinct(routed, copies, at) for at, copies in enumerate(leaving)]
        ways = [torch.stack([copies.to(weights.dtype), weights[copies]]) for copies in leaving]
        told = await all_to_all(self.group, ways, f"ways/{tag}")
        routed.sent = [len(of_rank) for of_rank in sent]
        routed.sums = torch.cat([of_rank * self.group.size + at for at, of_rank in enumerate(sent)])
        rows = await self._send_rows(routed, tokens, f"dispatch/{tag}")
        routed.arrived = [self._arrived(routed, way, len(of_rank)) for way, of_rank in zip(told, rows, strict=True)]
        return [
            await timed(self.node, copied_rows, of_rank, it.places, 1)
            for it, of_rank in zip(routed.arrived, rows, strict=True)
        ]

    async def combine(self, routed: RoutedTokens, outputs: Sequence[Tensor], stream: Tensor, tag: str) -> Tensor:
        """Send the weighted sums of the *outputs* back; return *stream* plus this rank's sums."""
        sums = []
        for it, rows in zip(routed.arrived, self.by_rank(routed, outputs), strict=True):
            it.rows = rows
            sums.append(await timed(self.node, weighted_copies, rows, it.slots, it.weights, it.like))
        back = torch.cat(await all_to_all(self.group, sums, f"combine/{tag}"))
        return await timed(self.node, added_copies, stream, back, routed.sums, self._like(routed))

    async def uncombine(self, routed: RoutedTokens, gradient: Tensor, tag: str) -> list[Tensor]:
        """Send the *gradient* of the sums to the experts; return that of the outputs for each rank."""
        found = []
        rows = await self._send_rows(routed, gradient.flatten(0, -2), f"uncombine/{tag}")
        for it, of_rank in zip(routed.arrived, rows, strict=True):
            above, it.by_weights = await timed(self.node, unweighted_copies, of_rank, it.rows, it.places, it.weights)
            found.append(above)
        return found

    async def undispatch(self, routed: RoutedTokens, found: Sequence[Tensor], tag: str) -> Tensor:
        """Send the sums of the gradients *found* back; return their sum for each token."""
        sums = [
            await timed(self.node, summed_copies, rows, it.slots, it.like)
            for it, rows in zip(routed.arrived, self.by_rank(routed, found), strict=True)
        ]
        back = torch.cat(await all_to_all(self.group, sums, f"undispatch/{tag}"))
        by_weights = torch.cat(await all_to_all(self.group, [it.by_weights for it in routed.arrived], f"unweigh/{tag}"))
        flat = routed.weights.new_zeros(routed.weights.numel()).index_copy(0, routed.index, by_weights)
        routed.by_weights = flat.view_as(routed.weights)
        return await timed(self.node, summed_copies, back, routed.sums, self._like(routed))

    async def _send_rows(self, routed: RoutedTokens, rows: Tensor, tag: str) -> list[Tensor]:
        """Send the *rows* of the tokens that each rank gets; return those that come from each rank."""
        leaving = await timed(self.node, copied_rows, rows, routed.sums, self.group.size)
        return await all_to_all(self.group, torch.split(leaving, routed.sent), tag)

    def _distinct(self, routed: RoutedTokens, copies: Tensor, at: int) -> Tensor:
        """Return the tokens of *copies*, ascending, which go to the rank at *at* in the group; without
        values as many as a uniform load has.
        """
        if copies.is_meta:
            whole, number = routed.piece.whole, self.place.number
            kept = len(copies) / max(1, int(routed.counts[number, self.place.own(whole, at)].sum()))
            experts, tokens = len(whole.experts), len(routed.weights)
            return copies.new_empty(merged_tokens(tokens, experts, routed.active, self.group.size, kept))
        found: Tensor = torch.unique(copies // routed.active)
        return found

    def _arrived(self, routed: RoutedTokens, way: Tensor, number: int) -> ArrivedTokens:
        """Return what is known of the *number* tokens that come from a rank which told their *way*."""
        copies, weights = way[0].long(), way[1]
        like = weights.new_empty(number, routed.active)
        if copies.is_meta:
            return ArrivedTokens(copies, copies, weights, like)
        _, places = torch.unique(copies // routed.active, return_inverse=True)
        return ArrivedTokens(places, places * routed.active + copies % routed.active, weights, like)

    def _like(self, routed: RoutedTokens) -> Tensor:
        return routed.weights.new_empty(len(routed.weights), self.group.size)
