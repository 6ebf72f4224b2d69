"""The shape of a decoder-only language model (Llama's layers), and what its layers weigh, store, read and compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from simcluster.errors import Problem, UsageError, nearest
from simcluster.transport import Cost

FORMATS: Final[Mapping[str, float]] = {"f32": 4.0, "f16": 2.0, "q8": 34 / 32, "q4": 18 / 32}
"""Format of weights -> its bytes per weight. q8 and q4 store one f16 scale for every 32 weights."""

ATTENTION_OPERATORS, FEED_OPERATORS = 11, 7
"""Kernels of a layer's halves: norm, 4 matrix products, 2 rotations, scores, softmax, values, sum; then norm, 3 matrix
products, SiLU, product, sum.
"""

OPERATORS: Final = ATTENTION_OPERATORS + FEED_OPERATORS

HEAD_OPERATORS: Final = 2
"""Kernels after the last layer: a norm and the product that gives the logits."""

MOST, MOST_LAYERS, MOST_NAME = 10**7, 1024, 60
"""Limits on the numbers of a shape, its layers, and the characters of its name: no model has larger ones."""


@dataclass(frozen=True)
class Shape:
    """A model's numbers. *weight_bytes* are those of a weight, *number_bytes* those of an activation or cache entry.

    If *tied*, the table of embeddings also gives the logits, and a node with both ends of the model holds it once.
    *gated*: the feed-forward network has three matrices, as Llama's; else two, as GPT-2's.
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

    @property
    def layer_matrices(self) -> int:
        """The weights of a layer that take part in matrix products: query, key, value, output, (gate,) up, down."""
        return self._attention_matrices + self._feed_matrices

    @property
    def _attention_matrices(self) -> int:
        return self.width * 2 * (self.heads + self.kv_heads) * self.head_size

    @property
    def _feed_matrices(self) -> int:
        return self.width * (2 + self.gated) * self.ffn_width

    @property
    def weights(self) -> int:
        tables = (1 if self.tied else 2) * self.vocabulary * self.width
        return self.layers * (self.layer_matrices + 2 * self.width) + tables + self.width

    @property
    def layer_bytes(self) -> float:
        return (self.layer_matrices + 2 * self.width) * self.weight_bytes

    @property
    def whole_bytes(self) -> float:
        """The bytes of all weights on one node."""
        return self.layers * self.layer_bytes + self.ends_bytes(True, True)

    def ends_bytes(self, first: bool, last: bool) -> float:
        """Return the bytes of weights outside the layers on a node with the model's *first* or *last* layer."""
        tables = first + last - (self.tied and first and last)
        return (tables * self.vocabulary * self.width + last * self.width) * self.weight_bytes

    def shard_bytes(self, share: float) -> float:
        """Return the bytes of weights of a tensor-parallel node: *share* of all matrices, all embeddings and norms."""
        matrices = self.layers * self.layer_matrices + (0 if self.tied else self.vocabulary * self.width)
        whole = self.vocabulary * self.width + (2 * self.layers + 1) * self.width
        return (share * matrices + whole) * self.weight_bytes

    def logits_bytes(self, requests: int, share: float) -> float:
        """Return the bytes of *share* of the logits of each request's last token."""
        return share * requests * self.vocabulary * self.number_bytes

    def cache_bytes(self, layers: float, tokens: float) -> float:
        """Return the bytes of the keys and values of *tokens* in *layers*."""
        return 2 * layers * self.kv_heads * self.head_size * self.number_bytes * tokens

    def hidden_bytes(self, tokens: float) -> float:
        """Return the bytes that one layer hands to the next for *tokens*."""
        return tokens * self.width * self.number_bytes

    def layer_cost(self, requests: int, tokens: int, context: int, share: float = 1.0) -> Cost:
        """Return the cost of *share* of a layer for *tokens* new tokens of each request, after *context* others."""
        return self.layers_cost(1, [(requests, tokens, context)], share)

    def layers_cost(self, layers: int, groups: Sequence[tuple[int, int, int]], share: float = 1.0) -> Cost:
        """Return the cost of *share* of *layers* for *groups* of (requests, new tokens of each, others before them).

        A matrix product takes 2 FLOPs per weight and token, attention 4 per head entry and pair of tokens. The weights
        are read once for all requests, every cache once.
        """
        one = self.attention_cost(groups, share) + self.feed_cost(groups, share)
        return Cost(layers * one.flops, layers * one.memory_bytes, layers * one.operators)

    def attention_cost(self, groups: Sequence[tuple[int, int, int]], share: float) -> Cost:
        """Return the cost of *share* of a layer's attention: see `layers_cost`."""
        flops, read = 0.0, (self._attention_matrices + self.width) * self.weight_bytes
        for requests, tokens, context in groups:
            pairs = tokens * context + tokens * (tokens + 1) / 2
            flops += requests * (2 * tokens * self._attention_matrices + 4 * self.heads * self.head_size * pairs)
            read += requests * self.cache_bytes(1, context + tokens)
        return Cost(share * flops, share * read, ATTENTION_OPERATORS)

    def feed_cost(self, groups: Sequence[tuple[int, int, int]], share: float) -> Cost:
        """Return the cost of *share* of a layer's feed-forward network: see `layers_cost`."""
        tokens = sum(requests * tokens for requests, tokens, _ in groups)
        read = (self._feed_matrices + self.width) * self.weight_bytes
        return Cost(share * 2 * tokens * self._feed_matrices, share * read, FEED_OPERATORS)

    def head_cost(self, requests: int, share: float = 1.0) -> Cost:
        """Return the cost of *share* of the logits of each request's last token."""
        table = self.vocabulary * self.width
        return Cost(share * 2 * requests * table, share * self.ends_bytes(False, True), HEAD_OPERATORS)


PRESETS: Final[Mapping[str, Shape]] = {
    "smollm2": Shape("SmolLM2 135M", 30, 576, 9, 3, 64, 1536, 49152, True, FORMATS["f32"]),
    "7b": Shape("Llama 2 7B", 32, 4096, 32, 32, 128, 11008, 32000, False, FORMATS["q4"]),
    "8b": Shape("Llama 3 8B", 32, 4096, 32, 8, 128, 14336, 128256, False, FORMATS["q4"]),
    "70b": Shape("Llama 3 70B", 80, 8192, 64, 8, 128, 28672, 128256, False, FORMATS["q4"]),
}
"""Name -> shape, with the format in which such a model usually runs on a shelf."""


def with_weights(shape: Shape, name: str) -> Shape:
    """Return *shape* with weights in the format *name*. Raise UsageError if there is none."""
    if name not in FORMATS:
        raise UsageError(Problem("--weights", repr(name), f"a format: {nearest(name, FORMATS)}"))
    return replace(shape, weight_bytes=FORMATS[name])


def checked(shape: Shape, source: str) -> Shape:
    """Return *shape*, read from *source*, with a name that can be printed. Raise UsageError with all numbers that no
    model has.
    """
    names = ("width", "heads", "kv_heads", "head_size", "ffn_width", "vocabulary")
    problems = [
        Problem(source, f"{name} {found!r}", f"a whole number from 1 to {most:,}")
        for name, most in [("layers", MOST_LAYERS), *((name, MOST) for name in names)]
        if type(found := getattr(shape, name)) is not int or not 0 < found <= most
    ]
    if not problems and shape.heads % shape.kv_heads:
        problems = [Problem(source, f"{shape.heads} heads with {shape.kv_heads} KV heads", "a multiple of them")]
    if problems:
        raise UsageError(problems)
    return replace(shape, name="".join(filter(str.isprintable, shape.name))[:MOST_NAME] or "model")
