"""The four all-to-alls of a layer of experts: tokens to their experts and outputs back, in both passes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simcluster.algorithms.model_parallel.expert_layout import ExpertLayout
from simcluster.algorithms.model_parallel.routed_tokens import RoutedTokens
from simcluster.algorithms.timed import timed
from simcluster.collectives import all_to_all, subgroup
from simcluster.transport import Transport
from simcluster.workloads.layers.experts import combine, copied_rows, summed_copies, uncombine


class CopyExchange:
    """All-to-alls in which every copy of a token travels, as does every output."""

    def __init__(self, node: Transport, place: ExpertLayout) -> None:
        self.node, self.place = node, place
        self.group = subgroup(node, place.place.along("expert"))

    async def dispatch(self, routed: RoutedTokens, tokens: Tensor, tag: str) -> list[Tensor]:
        """Send *tokens* to the ranks of their experts; return the copies that come from each rank."""
        copies = await timed(self.node, copied_rows, tokens, routed.index, routed.active)
        return await all_to_all(self.group, torch.split(copies, self.leaving(routed)), f"dispatch/{tag}")

    async def combine(self, routed: RoutedTokens, outputs: Sequence[Tensor], stream: Tensor, tag: str) -> Tensor:
        """Send the *outputs* of each own expert back; return *stream* plus this rank's weighted sums."""
        routed.rows = torch.cat(await all_to_all(self.group, self.by_rank(routed, outputs), f"combine/{tag}"))
        return await timed(self.node, combine, stream, routed.rows, routed.index, routed.weights)

    async def uncombine(self, routed: RoutedTokens, gradient: Tensor, tag: str) -> list[Tensor]:
        """Send the *gradient* of the sums to the experts; return that of the outputs for each rank."""
        above, routed.by_weights = await timed(
            self.node, uncombine, gradient, routed.rows, routed.index, routed.weights
        )
        return await all_to_all(self.group, torch.split(above, self.leaving(routed)), f"uncombine/{tag}")

    async def undispatch(self, routed: RoutedTokens, found: Sequence[Tensor], tag: str) -> Tensor:
        """Send the gradients *found* by each own expert back; return their sum for each token."""
        rows = torch.cat(await all_to_all(self.group, self.by_rank(routed, found), f"undispatch/{tag}"))
        return await timed(self.node, summed_copies, rows, routed.index, routed.weights)

    def leaving(self, routed: RoutedTokens) -> list[int]:
        """Return the number of this rank's copies for each rank of the group."""
        kept = routed.kept[self.place.number]
        return [int(kept[self.place.own(routed.piece.whole, at)].sum()) for at in range(self.group.size)]

    def by_expert(self, routed: RoutedTokens, arrived: Sequence[Tensor]) -> dict[int, Tensor]:
        """Return own expert -> its rows of what *arrived*, in rank order."""
        own, peers = self.place.own(routed.piece.whole), self.place.peers
        parts = [torch.split(rows, routed.kept[peer, own].tolist()) for peer, rows in zip(peers, arrived, strict=True)]
        return {e: torch.cat(rows) for e, rows in zip(own, zip(*parts, strict=True), strict=True)}

    def by_rank(self, routed: RoutedTokens, found: Sequence[Tensor]) -> list[Tensor]:
        """Return the rows *found* by each own expert by the rank that they come from: `by_expert` in reverse."""
        own, peers = self.place.own(routed.piece.whole), self.place.peers
        parts = [torch.split(rows, routed.kept[peers, e].tolist()) for e, rows in zip(own, found, strict=True)]
        return [torch.cat(rows) for rows in zip(*parts, strict=True)]
