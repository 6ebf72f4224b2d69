"""A share of a decoder: consecutive layers, with or without embedding and head, over a cache of keys and values.

Knows one share and its sequences; not which node has the others, nor how the stream travels between them. Each sequence
is computed by itself, in products whose shapes its own length decides: a result has the same bits whatever its
neighbours in the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from simcluster.inference.models.architecture import Architecture, Precision
from simcluster.inference.models.matrix import Matrix

Read = Callable[[str, int | None], Tensor]
"""Return the f32 tensor of a name and a layer (None: of no layer)."""


class Cache:
    """The keys and values of one sequence in one share's layers: room for *capacity* tokens, made at once."""

    def __init__(self, architecture: Architecture, layers: int, capacity: int) -> None:
        if not 0 < capacity <= architecture.context:
            raise ValueError(f"capacity: found {capacity}, expected 1 to the context of {architecture.context} tokens")
        size = (layers, architecture.kv_heads, capacity, architecture.head_width)
        self.keys, self.values = torch.zeros(size), torch.zeros(size)
        self.capacity, self.length = capacity, 0


@dataclass(frozen=True, slots=True)
class Part:
    """The next tokens of one sequence: *inputs* are token ids (n), or the stream (n, width) of the share before."""

    cache: Cache
    inputs: Tensor


def _length(part: Part) -> int:
    return len(part.inputs)


class Share:
    """The layers [*first*, *last*) of a decoder. The first share embeds tokens, the last one gives logits."""

    def __init__(
        self, architecture: Architecture, read: Read, first: int, last: int, precision: Precision = "f32"
    ) -> None:
        if not 0 <= first < last <= architecture.layers:
            raise ValueError(f"layers: found [{first}, {last}), expected a range within {architecture.layers} layers")
        self.architecture, self.first, self.last = architecture, first, last
        self.embeds, self.ends = first == 0, last == architecture.layers
        self._matrices: dict[tuple[str, int | None], Matrix] = {}
        self._vectors: dict[tuple[str, int | None], Tensor] = {}
        for name, layer in self._needed():
            tensor = read(name, layer)
            if tuple(tensor.shape) != architecture.shapes(name):
                expected = architecture.shapes(name)
                raise ValueError(f"{name}, layer {layer}: found {tuple(tensor.shape)}, expected the shape {expected}")
            if tensor.dim() == 1:
                self._vectors[name, layer] = tensor.float().clone()
            else:
                self._matrices[name, layer] = Matrix(tensor, precision)

    def _needed(self) -> list[tuple[str, int | None]]:
        """Return the names and layers of this share's tensors."""
        whole: list[tuple[str, int | None]] = []
        tied = self.architecture.tied
        if self.embeds or (self.ends and tied):
            whole.append(("embedding", None))
        if self.embeds and self.architecture.rope_base is None:
            whole.append(("position", None))
        if self.ends:
            whole += [("norm", None)] if tied else [("norm", None), ("output", None)]
        return whole + [(name, layer) for layer in range(self.first, self.last) for name in self._layer_names()]

    def _layer_names(self) -> list[str]:
        return self.architecture.layer_names()

    @property
    def nbytes(self) -> int:
        """The memory of the weights."""
        parts: list[Matrix | Tensor] = [*self._matrices.values(), *self._vectors.values()]
        return sum(part.nbytes for part in parts)

    def cache(self, capacity: int) -> Cache:
        """Return an empty cache for a sequence of at most *capacity* tokens."""
        return Cache(self.architecture, self.last - self.first, capacity)

    @torch.no_grad()
    def forward(self, parts: Sequence[Part], last: Sequence[int] | None = None) -> list[Tensor]:
        """Return for each part the stream (n, width) for the next share, or the logits (n, vocabulary); with *last*
        those of as many of its last tokens.

        The caches then hold the tokens of *parts*. Raises ValueError, before any cache changes, if one has no room.
        """
        if len({id(part.cache) for part in parts}) != len(parts):
            raise ValueError("parts: found two of one sequence, expected one")
        for part in parts:
            if not 0 < len(part.inputs) <= part.cache.capacity - part.cache.length:
                room = part.cache.capacity - part.cache.length
                raise ValueError(f"inputs: found {len(part.inputs)} tokens, expected 1 to the {room} that have room")
        return [self._sequence(part, rows) for part, rows in zip(parts, last or map(_length, parts), strict=True)]

    def _sequence(self, part: Part, last: int) -> Tensor:
        start, count = part.cache.length, len(part.inputs)
        positions = torch.arange(start, start + count)
        stream = self._embedded(part.inputs, positions) if self.embeds else part.inputs
        for layer in range(self.first, self.last):
            stream = stream + self._attention(layer, stream, positions, part.cache)
            stream = stream + self._feed_forward(layer, stream)
        part.cache.length += count
        if not self.ends:
            return stream
        return self._logits(stream[count - last :])

    def _embedded(self, tokens: Tensor, positions: Tensor) -> Tensor:
        stream = self._matrices["embedding", None].rows(tokens.long())
        if self.architecture.rope_base is None:
            stream = stream + self._matrices["position", None].rows(positions)
        return stream

    def _logits(self, stream: Tensor) -> Tensor:
        head = "embedding" if self.architecture.tied else "output"
        return self._matrices[head, None].product(self._norm("norm", None, stream))

    def _norm(self, name: str, layer: int | None, stream: Tensor) -> Tensor:
        weight, size = self._vectors[name, layer], (self.architecture.width,)
        if self.architecture.rope_base is None:
            return functional.layer_norm(stream, size, weight, eps=self.architecture.epsilon)
        return functional.rms_norm(stream, size, weight, eps=self.architecture.epsilon)

    def _attention(self, layer: int, stream: Tensor, positions: Tensor, cache: Cache) -> Tensor:
        sizes, count = self.architecture, len(stream)
        inputs = self._norm("norm_attention", layer, stream)
        query, key, value = (
            self._matrices[name, layer].product(inputs).view(count, -1, sizes.head_width).transpose(0, 1)
            for name in ("query", "key", "value")
        )
        if sizes.rope_base is not None:
            query, key = (rotated(heads, positions, sizes) for heads in (query, key))
        start, end = cache.length, cache.length + count
        keys, values = cache.keys[layer - self.first], cache.values[layer - self.first]
        keys[:, start:end], values[:, start:end] = key, value
        grouped = query.reshape(sizes.kv_heads, -1, sizes.head_width)  # the queries of a group share its keys
        scores = grouped @ keys[:, :end].transpose(1, 2) / sizes.head_width**0.5
        scores = scores.view(sizes.kv_heads, -1, count, end)
        later = torch.arange(end) > positions[:, None]
        shares = scores.masked_fill(later, -torch.inf).softmax(-1).view(sizes.kv_heads, -1, end)
        mixed = (shares @ values[:, :end]).view(sizes.heads, count, sizes.head_width)
        return self._matrices["merge", layer].product(mixed.transpose(0, 1).reshape(count, -1))

    def _feed_forward(self, layer: int, stream: Tensor) -> Tensor:
        inputs = self._norm("norm_feed", layer, stream)
        inner = self._matrices["up", layer].product(inputs)
        if self.architecture.gated:
            inner = functional.silu(self._matrices["gate", layer].product(inputs)) * inner
        else:
            inner = functional.gelu(inner)
        return self._matrices["down", layer].product(inner)


def rotated(heads: Tensor, positions: Tensor, architecture: Architecture) -> Tensor:
    """Return *heads* (heads, n, head width) with each pair of numbers rotated by its position (Su et al. 2021)."""
    assert architecture.rope_base is not None
    width = architecture.head_width
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    angles = positions[:, None].double() / architecture.rope_base**exponents
    cosine, sine = angles.cos().float(), angles.sin().float()
    if architecture.pairs == "interleaved":
        first, second = heads[..., 0::2], heads[..., 1::2]
    else:
        first, second = heads.chunk(2, dim=-1)
    turned = (first * cosine - second * sine, first * sine + second * cosine)
    return torch.stack(turned, -1).flatten(-2) if architecture.pairs == "interleaved" else torch.cat(turned, -1)
