"""The two passes of a rank with some of the experts: dispatch, compute, combine, and the same ways back."""

from __future__ import annotations

import torch
from torch import Tensor

from simcluster.algorithms.model_parallel.copy_exchange import CopyExchange
from simcluster.algorithms.model_parallel.expert_layout import ExpertLayout, ExpertPiece
from simcluster.algorithms.model_parallel.expert_load import Counts, ExpertLoad, counts_by, kept_of, shares_of
from simcluster.algorithms.model_parallel.merged_exchange import MergedExchange
from simcluster.algorithms.model_parallel.routed_tokens import RoutedTokens, kept_index
from simcluster.algorithms.timed import timed
from simcluster.collectives import all_gather
from simcluster.errors import UsageError
from simcluster.transport import Transport
from simcluster.workloads import Batch, Replica
from simcluster.workloads.layers.experts import MOST_COPIES, choose, router_gradient, tally, weigh
from simcluster.workloads.layers.layers import Layer


class ExpertPasses:
    """The two passes of a rank at *place* in the layout."""

    def __init__(
        self, node: Transport, replica: Replica, place: ExpertLayout, factor: float | None, balance: float, z: float,
        load: ExpertLoad, merge: bool,
    ) -> None:  # fmt: skip
        self.node, self.replica, self.place = node, replica, place
        self.ways = (MergedExchange if merge else CopyExchange)(node, place)
        self._factor, self._balance, self._z, self._load = factor, balance, z, load

    async def forward(self, batch: Batch, step: int, routed: dict[int, RoutedTokens]) -> float:
        """Run phase 1, and return the loss of *batch*; put the tokens of each layer into *routed*."""
        costs, stream = self.replica.layer_costs(batch), batch.inputs
        *pieces, last = self.place.pieces
        for number, piece in enumerate(pieces):
            if isinstance(piece, ExpertPiece):
                routed[number], stream = await self._through(piece, stream, f"{step}/{number}")
            else:
                stream = await self.node.compute(piece.forward, stream, cost=costs[number].forward)
        assert not isinstance(last, ExpertPiece), "checked by ExpertLayout"
        return await self.node.compute(last.loss, stream, batch.targets, cost=costs[-1].forward)

    async def backward(self, batch: Batch, step: int, routed: dict[int, RoutedTokens], sums: dict[int, Tensor]) -> None:
        """Run phase 2: add this rank's share of the joined batch's gradient to *sums*."""
        costs = self.replica.layer_costs(batch)
        gradient: Tensor | None = None
        share = len(batch) / self.replica.batch_sizes.total
        for number, piece in reversed(list(enumerate(self.place.pieces))):
            if isinstance(piece, ExpertPiece):
                assert gradient is not None, "a layer of experts is not the last"
                gradient = await self._back_through(routed[number], gradient, f"{step}/{number}", sums)
            else:
                own = [sums[at] for at in piece.parameters]
                cost = costs[number].backward
                below, _ = await self.node.compute(piece.backward, gradient, 0, share, own, cost=cost)
                gradient = below

    async def _through(self, piece: ExpertPiece, stream: Tensor, tag: str) -> tuple[RoutedTokens, Tensor]:
        """Send the tokens of *stream* to their experts and back; return (them, the layer's output)."""
        node, whole = self.node, piece.whole
        inputs = await self._rows(piece, piece.norm, "norm", stream)
        tokens = inputs.flatten(0, -2)
        scores = await self._rows(piece, piece.router, "router", tokens)
        chosen = await timed(node, choose, scores, whole.bias.to(scores.device), whole.active)
        weights = await timed(node, weigh, scores, chosen)

        # Count: what fits an expert depends on all ranks' tokens, in rank order, and not on arrival.
        if chosen.numel() > MOST_COPIES:
            raise UsageError("batch_size", f"{chosen.numel():,} copies of tokens", f"at most {MOST_COPIES:,} per rank")
        own = await timed(node, tally, scores, chosen)
        everyone = await all_gather(node, own, f"counts/{tag}")
        counts = self._counts(everyone, piece, len(tokens))
        kept = kept_of(counts, self._factor, whole.active)
        index = kept_index(chosen, counts[node.rank], kept[node.rank])

        # Dispatch, compute, combine.
        mass = torch.stack(everyone).sum(0)[len(whole.experts) :]
        routed = RoutedTokens(piece, scores, chosen, weights, counts, kept, mass, index)
        outputs = []
        for e, rows in self.ways.by_expert(routed, await self.ways.dispatch(routed, tokens, tag)).items():
            cost = self.replica.rows_cost(piece.number, f"experts.{e}", len(rows), rows.shape[1])
            outputs.append(await node.compute(piece.experts[e].forward, rows, cost=cost.forward) if len(rows) else rows)
        return routed, await self.ways.combine(routed, outputs, stream, tag)

    async def _back_through(self, routed: RoutedTokens, gradient: Tensor, tag: str, sums: dict[int, Tensor]) -> Tensor:
        """Return the gradient with respect to the layer's input, along the same ways back."""
        node = self.node
        piece = routed.piece
        found = []
        for e, rows in self.ways.by_expert(routed, await self.ways.uncombine(routed, gradient, tag)).items():
            cost = self.replica.rows_cost(piece.number, f"experts.{e}", len(rows), rows.shape[1])
            own = [sums[at] for at in piece.experts[e].parameters]
            if len(rows):
                below, _ = await node.compute(piece.experts[e].backward, rows, 0, 1.0, own, cost=cost.backward)
                assert below is not None, "tokens have gradients"
                rows = below
            found.append(rows)
        through = await self.ways.undispatch(routed, found, tag)

        # The router's gradient: through the weights, and from the losses that balance.
        load = routed.load
        tokens = int(load.sum()) / routed.chosen.shape[1]
        terms = self._balance * len(load) / tokens, self._z / tokens
        by_scores = await timed(
            node, router_gradient, routed.scores, routed.chosen, routed.by_weights, routed.shares(), *terms
        )
        of_router = await self._rows_back(piece, piece.router, "router", by_scores, sums)
        through = await timed(node, torch.add, through, of_router)
        below = await self._rows_back(piece, piece.norm, "norm", through.view_as(gradient), sums)
        return await timed(node, torch.add, gradient, below)

    def _counts(self, everyone: list[Tensor], piece: ExpertPiece, tokens: int) -> Counts:
        """Return the copies of each rank for each expert: those counted, or without values the set
        load's.
        """
        experts, active = len(piece.whole.experts), piece.whole.active
        if self.replica.computes:
            return torch.stack(everyone)[:, :experts].long().cpu().numpy()
        sizes = self.replica.batch_sizes
        copies = [tokens * active * size // self.replica.batch_size for size in sizes]
        return counts_by(shares_of(self._load, experts, active), copies)

    async def _rows(self, piece: ExpertPiece, layer: Layer, name: str, rows: Tensor) -> Tensor:
        cost = self.replica.rows_cost(piece.number, name, rows.numel() // rows.shape[-1], rows.shape[-1])
        return await self.node.compute(layer.forward, rows, cost=cost.forward)

    async def _rows_back(
        self, piece: ExpertPiece, layer: Layer, name: str, gradient: Tensor, sums: dict[int, Tensor]
    ) -> Tensor:
        width = piece.whole.router.in_features
        cost = self.replica.rows_cost(piece.number, name, gradient.numel() // gradient.shape[-1], width)
        own = [sums[at] for at in layer.parameters]
        below, _ = await self.node.compute(layer.backward, gradient, 0, 1.0, own, cost=cost.backward)
        assert below is not None
        return below
