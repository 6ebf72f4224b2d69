"""The transformer of the GPT, with pre-normalised layers that add to a residual stream.

It follows Radford et al. 2019 (GPT-2), with gated feed-forward layers as in Shazeer 2020 and
grouped keys and values as in Ainslie et al. 2023.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from simcluster.workloads.layers.experts import ExpertLayer
from simcluster.workloads.layers.tensor_split import ParameterCut, SplitLayer, check_divides

INITIAL_DEVIATION = 0.02


@dataclass(frozen=True, slots=True)
class GptShape:
    """The size of a GPT.

    *kv_heads* heads of keys and values serve *heads* heads of queries. *head_width* is the width of
    each; by default, the heads of queries share the model's *width*. *feed_forward* is the inner
    width of a layer's feed-forward half. *gated*: whether feed-forward layers have a gate. *tied*:
    whether the output layer shares the embedding's weights. *experts*: the number of feed-forward
    networks of a layer, of which a token passes *active*; 0 for one without a router.
    """

    layers: int
    width: int
    heads: int
    vocabulary: int
    context: int
    kv_heads: int
    feed_forward: int
    gated: bool = False
    tied: bool = True
    experts: int = 0
    active: int = 0
    head_width: int | None = None

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.head_width or self.width // self.heads

    @property
    def parameters(self) -> int:
        """The number of parameters, computed from the sizes."""
        heads = (2 * self.heads + 2 * self.kv_heads) * self.head * self.width
        feed = (3 if self.gated else 2) * self.width * self.feed_forward * max(1, self.experts)
        feed += self.width * self.experts
        tables = (self.vocabulary * (1 if self.tied else 2) + self.context) * self.width
        return self.layers * (heads + feed + 2 * self.width) + tables + self.width


class GPT(nn.Module):
    """A decoder-only model that maps tokens (batch, length) to scores (batch, length, vocabulary)
    of the next token.
    """

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(TransformerBlock(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, bias=False)
        self.output = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.dropout = nn.Dropout(0.0)  # a recipe sets its share
        if shape.tied:
            self.output.weight = self.embedding.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # Each layer adds to the residual stream twice, so the weights that produce these
                # terms are scaled to keep the size of the sum.
                residual = name.endswith(("merge.weight", "down.weight"))
                scale = 1 / math.sqrt(2 * shape.layers) if residual else 1.0
                nn.init.normal_(parameter, std=INITIAL_DEVIATION * scale)

    def forward(self, tokens: Tensor) -> Tensor:
        stream: Tensor = tokens
        for layer in self.layers():
            stream = layer(stream)
        return stream

    def layers(self) -> list[nn.Module]:
        """Return the modules in the order of application. If the model is tied, the first and the
        last module share the embedding.
        """
        halves = [half for block in self.blocks for half in cast(TransformerBlock, block).halves(self.dropout)]
        return [Entrance(self.embedding, self.position, self.dropout), *halves, self.norm, self.output]


class Entrance(nn.Module):
    """The first layer: the token embedding plus the position embedding, with *dropout*."""

    def __init__(self, embedding: nn.Embedding, position: nn.Embedding, dropout: nn.Dropout) -> None:
        super().__init__()
        self.embedding, self.position, self.dropout = embedding, position, dropout

    def forward(self, tokens: Tensor) -> Tensor:
        stream: Tensor = self.dropout(self.embedding(tokens.long()) + self.position.weight[: tokens.shape[1]])
        return stream


class Attention(nn.Module):
    """Causal attention with *heads* heads of queries and *kv_heads* heads of keys and values."""

    def __init__(self, split: nn.Linear, merge: nn.Linear, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.split = split
        self.merge = merge
        self.heads = heads
        self.kv_heads = kv_heads
        self.head_width = split.out_features // (heads + 2 * kv_heads)

    def forward(self, inputs: Tensor) -> Tensor:
        batch, length, _ = inputs.shape
        heads = self.split(inputs).view(batch, length, -1, self.head_width).transpose(1, 2)
        query, key, value = heads.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        if self.kv_heads < self.heads:
            shared = self.heads // self.kv_heads
            key, value = key.repeat_interleave(shared, dim=1), value.repeat_interleave(shared, dim=1)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        merged: Tensor = self.merge(mixed.transpose(1, 2).reshape(batch, length, -1))
        return merged

    def share(self, size: int) -> tuple[nn.Module, dict[str, ParameterCut]]:
        """Return (one rank's module, which has 1/*size* of the heads; name of a weight -> the split
        that fills it).
        """
        check_divides(f"{self.heads} heads", self.heads, size)
        check_divides(f"{self.kv_heads} heads of keys and values", self.kv_heads, size)
        columns = tuple(count * self.head_width for count in (self.heads, self.kv_heads, self.kv_heads))
        own = Attention(*_pair(self.split, self.merge, size), self.heads // size, self.kv_heads // size)
        rows = ParameterCut(self.merge.weight, 1, (self.merge.in_features,))
        return own, {"split.weight": ParameterCut(self.split.weight, 0, columns), "merge.weight": rows}


class FeedForward(nn.Module):
    """Two products with an activation between them.

    *gated*: whether one half of the first product's outputs gates the other half.
    """

    def __init__(self, up: nn.Linear, down: nn.Linear, gated: bool) -> None:
        super().__init__()
        self.up = up
        self.down = down
        self.gated = gated

    def forward(self, inputs: Tensor) -> Tensor:
        inner = self.up(inputs)
        if self.gated:
            gate, inner = inner.chunk(2, dim=-1)
            inner = nn.functional.silu(gate) * inner
        else:
            inner = nn.functional.gelu(inner)
        lowered: Tensor = self.down(inner)
        return lowered

    def share(self, size: int) -> tuple[nn.Module, dict[str, ParameterCut]]:
        """Return (one rank's module, which has 1/*size* of the inner columns; name of a weight ->
        the split that fills it).
        """
        inner = self.down.in_features
        check_divides(f"feed_forward {inner}", inner, size)
        columns = ParameterCut(self.up.weight, 0, (inner, inner) if self.gated else (inner,))
        own = FeedForward(*_pair(self.up, self.down, size), self.gated)
        return own, {"up.weight": columns, "down.weight": ParameterCut(self.down.weight, 1, (inner,))}

    def tensor_split(self, size: int) -> SplitLayer:
        """Return the network split over *size* ranks, as an expert is."""
        return SplitLayer(*self.share(size))


def _pair(first: nn.Linear, second: nn.Linear, size: int) -> tuple[nn.Linear, nn.Linear]:
    """Return uninitialised Linears for one rank's share: 1/*size* of the outputs of *first*, and of
    the inputs of *second*.
    """
    return (
        nn.Linear(first.in_features, first.out_features // size, bias=False),
        nn.Linear(second.in_features // size, second.out_features, bias=False),
    )


class Residual(nn.Module):
    """A module that adds to its input the result of *work* on the normalised input, with *dropout*
    (Vaswani et al. 2017, section 5.4).
    """

    def __init__(self, norm: nn.Module, work: Attention | FeedForward, dropout: nn.Dropout) -> None:
        super().__init__()
        self.norm, self.work, self.dropout = norm, work, dropout

    def forward(self, stream: Tensor) -> Tensor:
        added: Tensor = self.dropout(self.work(self.norm(stream)))
        return stream + added

    def tensor_split(self, size: int) -> SplitLayer:
        """Return the layer with its work split over *size* ranks; every rank normalises."""
        work, cuts = self.work.share(size)
        cuts = {f"0.{name}": cut for name, cut in cuts.items()}
        return SplitLayer(nn.Sequential(work, self.dropout), cuts, before=self.norm, residual=True, alike=True)


class TransformerBlock(nn.Module):
    """One layer of the transformer: attention, then a feed-forward network, each added to its
    input.
    """

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.kv_heads = shape.kv_heads
        self.gated = shape.gated
        self.norm_attention = nn.LayerNorm(shape.width, bias=False)
        self.split = nn.Linear(shape.width, (shape.heads + 2 * shape.kv_heads) * shape.head, bias=False)
        self.merge = nn.Linear(shape.heads * shape.head, shape.width, bias=False)
        self.norm_feed = nn.LayerNorm(shape.width, bias=False)
        self.experts: ExpertLayer | None = None
        if shape.experts:
            router = nn.Linear(shape.width, shape.experts, bias=False)
            networks = [FeedForward(*_feed(shape), shape.gated) for _ in range(shape.experts)]
            self.experts = ExpertLayer(self.norm_feed, router, networks, shape.active)
        else:
            self.up, self.down = _feed(shape)

    def halves(self, dropout: nn.Dropout) -> list[nn.Module]:
        """Return the two halves of the layer, in the order of application, with *dropout*."""
        attention = Attention(self.split, self.merge, self.heads, self.kv_heads)
        if self.experts is not None:
            return [Residual(self.norm_attention, attention, dropout), self.experts]
        feed_forward = FeedForward(self.up, self.down, self.gated)
        return [
            Residual(self.norm_attention, attention, dropout),
            Residual(self.norm_feed, feed_forward, dropout),
        ]


def _feed(shape: GptShape) -> tuple[nn.Linear, nn.Linear]:
    """Return the two products of a feed-forward network."""
    up = nn.Linear(shape.width, shape.feed_forward * (2 if shape.gated else 1), bias=False)
    return up, nn.Linear(shape.feed_forward, shape.width, bias=False)
