"""The two passes of a rank with some of the experts: dispatch, compute, combine, and the same ways back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from simcluster.algorithms.model_parallel.copy_exchange import CopyExchange
from simcluster.algorithms.model_parallel.expert_layout import ExpertLayout, ExpertPiece
from simcluster.algorithms.model_parallel.expert_load import Counts, ExpertLoad, counts_by, kept_of, shares_of
from simcluster.algorithms.model_parallel.merged_exchange import MergedExchange
from simcluster.algorithms.model_parallel.routed_tokens import RoutedTokens, kept_index, shift
from simcluster.algorithms.model_parallel.tensor_parallel import back_through, forward_through
from simcluster.algorithms.timed import timed
from simcluster.collectives import all_gather, all_reduce, flatten, subgroup, unflatten
from simcluster.errors import UsageError
from simcluster.transport import Transport
from simcluster.workloads import Batch, Replica
from simcluster.workloads.layers.experts import MOST_COPIES, ExpertLayer, choose, router_gradient, tally, weigh
from simcluster.workloads.layers.layer_costs import LayerCost
from simcluster.workloads.layers.layers import Layer


class ExpertPasses:
    """The stage of a rank at *place* in the layout: see `pipeline_flush.TrainingStage`."""

    def __init__(
        self, node: Transport, replica: Replica, place: ExpertLayout, factor: float | None, balance: float, z: float,
        load: ExpertLoad, merge: bool, schedule: str,
    ) -> None:  # fmt: skip
        self.node, self.replica, self.place = node, replica, place
        self.ways = (MergedExchange if merge else CopyExchange)(node, place)
        self.replicas = subgroup(node, place.place.along("data", "expert"))
        self.tensor = subgroup(node, place.place.along("tensor"))
        self._factor, self._balance, self._z, self._load, self._schedule = factor, balance, z, load, schedule
        self._routed: dict[tuple[str, int], RoutedTokens] = {}
        self._found: list[tuple[ExpertLayer, Counts, dict[str, float]]] = []

    async def forward(self, inputs: Tensor, micro: Batch, name: str) -> Tensor:
        costs, stream = self.place.costs(micro), inputs
        for number, piece in self.place.pieces:
            if isinstance(piece, ExpertPiece):
                stream = await self._through(piece, stream, name)
            else:
                how = f"g/{name}/{number}", self._schedule, name
                stream = await forward_through(self.tensor, piece, costs[number], stream, *how)
        return stream

    async def loss(self, inputs: Tensor, micro: Batch, name: str) -> float:
        stream, cost = await self.forward(inputs, micro, name), self.place.costs(micro)[-1].whole
        return await self.node.compute(self.place.last.loss, stream, micro.targets, name, cost=cost.forward)

    async def backward(
        self, gradient: Tensor | None, micro: Batch, name: str, share: float, sums: Mapping[int, Tensor]
    ) -> Tensor | None:
        costs, last = self.place.costs(micro), self.place.last
        if self.place.is_last:
            # A replica's loss counts by its share of all samples.
            share *= self.place.sizes[self.place.number] / self.replica.batch_sizes.total
            own = [sums[at] for at in last.parameters]
            gradient, _ = await self.node.compute(last.backward, None, name, share, own, cost=costs[-1].whole.backward)
        for number, piece in reversed(self.place.pieces):
            if isinstance(piece, ExpertPiece):
                assert gradient is not None, "a layer of experts is not the last"
                gradient = await self._back_through(piece, gradient, name, sums)
            else:
                how = f"f/{name}/{number}", self._schedule, name
                gradient = await back_through(self.tensor, piece, costs[number], gradient, sums, *how)
        return gradient

    def settle(self, bias_rate: float) -> dict[str, float]:
        """Steer the routers by the loads of a step; return the means of what its layers record."""
        found, self._found = self._found, []
        loads: dict[ExpertLayer, Counts] = {}
        for whole, load, _ in found:
            loads[whole] = loads[whole] + load if whole in loads else load
        for whole, load in loads.items():
            shift(whole, load, bias_rate)
        recorded = [metrics for _, _, metrics in found]
        return {name: sum(one[name] for one in recorded) / len(recorded) for name in (*recorded, {})[0]}

    async def _through(self, piece: ExpertPiece, stream: Tensor, name: str) -> Tensor:
        """Send the tokens of *stream* to their experts and back; return the layer's output."""
        node, whole = self.node, piece.whole
        tag = f"{name}/{piece.number}"
        inputs = await self._rows(piece, piece.norm, "norm", stream, name)
        tokens = inputs.flatten(0, -2)
        scores = await self._rows(piece, piece.router, "router", tokens, name)
        chosen = await timed(node, choose, scores, whole.bias.to(scores.device), whole.active)
        weights = await timed(node, weigh, scores, chosen)

        # Count: what fits an expert depends on all ranks' tokens, in rank order, and not on arrival.
        if chosen.numel() > MOST_COPIES:
            raise UsageError("batch_size", f"{chosen.numel():,} copies of tokens", f"at most {MOST_COPIES:,} per rank")
        own = await timed(node, tally, scores, chosen)
        everyone = await all_gather(self.replicas, own, f"counts/{tag}")
        counts = self._counts(everyone, piece, len(tokens))
        kept = kept_of(counts, self._factor, whole.active)
        index = kept_index(chosen, counts[self.place.number], kept[self.place.number])

        # Dispatch, compute, combine.
        mass = torch.stack(everyone).sum(0)[len(whole.experts) :]
        routed = RoutedTokens(piece, scores, chosen, weights, counts, kept, mass, index)
        outputs = []
        for e, rows in self.ways.by_expert(routed, await self.ways.dispatch(routed, tokens, tag)).items():
            cost = self._cost(piece, e, rows)
            if len(rows):
                rows = await node.compute(piece.experts[e].forward, rows, name, cost=cost.forward)
            outputs.append(rows)
        self._routed[name, piece.number] = routed
        self._found.append((whole, routed.load, routed.metrics()))
        if self.tensor.size == 1:
            return await self.ways.combine(routed, outputs, stream, tag)
        # Each tensor rank has a term of the sums; the residual counts once.
        term = await self.ways.combine(routed, outputs, torch.zeros_like(stream), tag)
        total = await all_reduce(self.tensor, term, f"g/{tag}", schedule=self._schedule)
        return await timed(node, torch.add, stream, total)

    async def _back_through(
        self, piece: ExpertPiece, gradient: Tensor, name: str, sums: Mapping[int, Tensor]
    ) -> Tensor:
        """Return the gradient with respect to the layer's input, along the same ways back."""
        node, tag = self.node, f"{name}/{piece.number}"
        routed = self._routed.pop((name, piece.number))
        found = []
        for e, rows in self.ways.by_expert(routed, await self.ways.uncombine(routed, gradient, tag)).items():
            cost = self._cost(piece, e, rows)
            own = [sums[at] for at in piece.experts[e].parameters]
            if len(rows):
                below, _ = await node.compute(piece.experts[e].backward, rows, name, 1.0, own, cost=cost.backward)
                assert below is not None, "tokens have gradients"
                rows = below
            found.append(rows)
        through = await self.ways.undispatch(routed, found, tag)
        if self.tensor.size > 1:
            own = [through, routed.by_weights]
            total = await all_reduce(self.tensor, flatten(own), f"f/{tag}", schedule=self._schedule)
            through, routed.by_weights = unflatten(total, own)

        # The router's gradient: through the weights, and from the losses that balance.
        load = routed.load
        tokens = int(load.sum()) / routed.chosen.shape[1] * self.place.micro_batches
        terms = self._balance * len(load) / tokens, self._z / tokens
        by_scores = await timed(
            node, router_gradient, routed.scores, routed.chosen, routed.by_weights, routed.shares(), *terms
        )
        of_router = await self._rows_back(piece, piece.router, "router", by_scores, name, sums)
        through = await timed(node, torch.add, through, of_router)
        below = await self._rows_back(piece, piece.norm, "norm", through.view_as(gradient), name, sums)
        return await timed(node, torch.add, gradient, below)

    def _counts(self, everyone: list[Tensor], piece: ExpertPiece, tokens: int) -> Counts:
        """Return the copies of each rank for each expert: those counted, or without values the set
        load's.
        """
        experts, active = len(piece.whole.experts), piece.whole.active
        if self.replica.computes:
            return torch.stack(everyone)[:, :experts].long().cpu().numpy()
        sizes = self.place.sizes
        copies = [tokens * active * size // sizes[self.place.number] for size in sizes]
        return counts_by(shares_of(self._load, experts, active), copies)

    def _cost(self, piece: ExpertPiece, e: int, rows: Tensor) -> LayerCost:
        return self.replica.rows_cost(piece.number, f"experts.{e}", len(rows), rows.shape[1], self.place.tensor)

    async def _rows(self, piece: ExpertPiece, layer: Layer, which: str, rows: Tensor, name: str) -> Tensor:
        cost = self.replica.rows_cost(piece.number, which, rows.numel() // rows.shape[-1], rows.shape[-1])
        return await self.node.compute(layer.forward, rows, name, cost=cost.forward)

    async def _rows_back(
        self, piece: ExpertPiece, layer: Layer, which: str, gradient: Tensor, name: str, sums: Mapping[int, Tensor]
    ) -> Tensor:
        width = piece.whole.router.in_features
        cost = self.replica.rows_cost(piece.number, which, gradient.numel() // gradient.shape[-1], width)
        own = [sums[at] for at in layer.parameters]
        below, _ = await self.node.compute(layer.backward, gradient, name, 1.0, own, cost=cost.backward)
        assert below is not None
        return below
