"""A share of a decoder: consecutive layers, with or without embedding and head, over a cache of keys and values.

Knows one share and its sequences; not which node has the others, nor how the stream travels between them. Many
sequences go through the weights together, and each attends by itself: a result has the same bits whatever its
neighbours in the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import torch
from torch import Tensor
from torch.nn import functional

from simcluster.lm.models.architecture import Architecture, Precision
from simcluster.lm.models.attention import Queries, attended, queries, tiled
from simcluster.lm.models.matrix import Matrix, looked_up
from simcluster.lm.models.rotation import Rotation, in_halves, rotated

Read = Callable[[str, int | None, int, int], Tensor]
"""Return in f32 the rows [first, last) of the tensor of a name and a layer (None: of no layer)."""

PIECE_BYTES = 2**20
"""About this many bytes of f32 are read at a time, so that no matrix is there as a whole before it is stored."""

LANES = 32
"""The inner numbers of a layer are filled up to a multiple of this: the last few of a tensor may round otherwise."""


class Cache:
    """The keys and values of one sequence in one share's layers: room for *capacity* tokens, made at once."""

    def __init__(self, architecture: Architecture, layers: int, capacity: int) -> None:
        if not 0 < capacity <= architecture.context:
            raise ValueError(f"capacity: found {capacity}, expected 1 to the context of {architecture.context} tokens")
        size = (layers, architecture.kv_heads, tiled(capacity), architecture.head_width)
        self.keys, self.values = torch.zeros(size), torch.zeros(size)
        self.capacity, self.length = capacity, 0


@dataclass(frozen=True, slots=True)
class SequencePart:
    """The next tokens of one sequence: *inputs* are token ids (n), or the stream (n, width) of the share before."""

    cache: Cache
    inputs: Tensor


class Pass:
    """One pass of *parts* through a share: their rows, one part after another, and what all layers need of them."""

    def __init__(self, parts: Sequence[SequencePart], architecture: Architecture, rotation: Rotation | None) -> None:
        self.parts = parts
        self.counts = [len(part.inputs) for part in parts]
        starts = [part.cache.length for part in parts]
        ends = [start + count for start, count in zip(starts, self.counts, strict=True)]
        self.positions = torch.cat([torch.arange(*span) for span in zip(starts, ends, strict=True)])
        self.angles = None if rotation is None else rotation.at(self.positions, max(ends))
        self._spans = [slice(*pair) for pair in pairwise([0, *accumulate(self.counts)])]
        group = architecture.heads // architecture.kv_heads
        self.queries = [queries(*span, group) for span in zip(starts, self.counts, strict=True)]

    def attended(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the attention of all parts in the *layer*-th of the share; *key* and *value* go into the caches."""
        if len(self.parts) == 1:
            return _attended(self.parts[0].cache, layer, query, key, value, self.queries[0])
        rows = []
        for part, found, span in zip(self.parts, self.queries, self._spans, strict=True):
            rows.append(_attended(part.cache, layer, query[span], key[span], value[span], found))
        return torch.cat(rows)

    def end(self) -> None:
        """Let the caches hold the tokens."""
        for part, count in zip(self.parts, self.counts, strict=True):
            part.cache.length += count


def _attended(cache: Cache, layer: int, query: Tensor, key: Tensor, value: Tensor, found: list[Queries]) -> Tensor:
    keys, values, span = cache.keys[layer], cache.values[layer], slice(cache.length, cache.length + len(key))
    keys[:, span], values[:, span] = key.transpose(0, 1), value.transpose(0, 1)
    return attended(query, keys, values, found)


class DecoderShare:
    """The layers [*first*, *last*) of a decoder. The first share embeds tokens, the last one gives logits."""

    def __init__(
        self, architecture: Architecture, read: Read, first: int, last: int, precision: Precision = "f32"
    ) -> None:
        if not 0 <= first < last <= architecture.layers:
            raise ValueError(f"layers: found [{first}, {last}), expected a range within {architecture.layers} layers")
        self.architecture, self.first, self.last = architecture, first, last
        self.embeds, self.ends = first == 0, last == architecture.layers
        self._rotation = None if architecture.rope_base is None else Rotation(architecture)
        self._matrices: dict[tuple[str, int | None], Matrix] = {}
        self._vectors: dict[tuple[str, int | None], Tensor] = {}
        self._tables: list[Matrix] = []
        self._read, self._precision = read, precision
        self._load_ends()
        for layer in range(first, last):
            self._load_layer(layer)
        del self._read

    def _load_ends(self) -> None:
        """Read what is outside the layers. A table that also gives the logits is stored once."""
        tied = self.architecture.tied
        if self.ends:
            name = "embedding" if tied else "output"
            head = self._matrix(self._pieces(name), self._shape(name), table=tied and self.embeds)
            self._matrices["head", None] = head
            self._vectors["norm", None] = self._vector("norm")
        if self.embeds:
            self._tables = [self._matrices["head", None]] if self.ends and tied else [self._table("embedding")]
            self._load_positions()

    def _load_positions(self) -> None:
        if self._rotation is None:
            self._matrices["position", None] = self._table("position")

    def _load_layer(self, layer: int) -> None:
        """Read the tensors of *layer*. Those with the same inputs become one matrix, and so one product."""
        sizes = self.architecture
        more = -sizes.feed_forward % LANES
        all_heads = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_width
        ups = ("gate", "up") if sizes.gated else ("up",)
        made: dict[str, tuple[Iterable[Tensor], tuple[int, int]]] = {
            "heads": (chain.from_iterable(self._pieces(n, layer) for n in _HEADS), (all_heads, sizes.width)),
            "merge": (self._pieces("merge", layer), self._shape("merge")),
            "up": (
                chain.from_iterable([*self._pieces(name, layer), torch.zeros(more, sizes.width)] for name in ups),
                (len(ups) * (sizes.feed_forward + more), sizes.width),
            ),
            "down": (
                (functional.pad(piece, (0, more)) for piece in self._pieces("down", layer)),
                (sizes.width, sizes.feed_forward + more),
            ),
        }
        for name, (pieces, shape) in made.items():
            self._matrices[name, layer] = self._matrix(pieces, shape)
        for name in ("norm_attention", "norm_feed"):
            self._vectors[name, layer] = self._vector(name, layer)

    def _matrix(self, pieces: Iterable[Tensor], shape: tuple[int, int], *, table: bool = False) -> Matrix:
        return Matrix(pieces, shape, self._precision, table=table)

    def _table(self, name: str, first: int = 0, last: int | None = None) -> Matrix:
        """Return the rows [*first*, *last*) of the table *name*, by default all, to be looked up alone."""
        rows, columns = self._shape(name)
        last = rows if last is None else last
        pieces = self._pieces(name, None, first, last)
        return Matrix(pieces, (last - first, columns), self._precision, table=True, multiplies=False)

    def _pieces(self, name: str, layer: int | None = None, first: int = 0, last: int | None = None) -> Iterator[Tensor]:
        """Yield the rows [*first*, *last*) of a tensor in pieces, by default all; of rotated heads, whole ones."""
        sizes, (rows, columns) = self.architecture, self._shape(name)
        is_rotated = self._rotation is not None and name in ("query", "key")
        unit = sizes.head_width if is_rotated else 1
        step = max(1, PIECE_BYTES // (4 * unit * columns)) * unit
        last = rows if last is None else last
        for begin in range(first, last, step):
            end = min(begin + step, last)
            piece = self._rows(name, layer, begin, end, (end - begin, columns))
            yield in_halves(piece, unit) if is_rotated and sizes.pairs == "interleaved" else piece

    def _vector(self, name: str, layer: int | None = None) -> Tensor:
        shape = self.architecture.shapes(name)
        return self._rows(name, layer, 0, shape[0], shape).clone()

    def _rows(self, name: str, layer: int | None, first: int, last: int, expected: tuple[int, ...]) -> Tensor:
        tensor = self._read(name, layer, first, last)
        if tuple(tensor.shape) != expected:
            raise ValueError(f"{name}, layer {layer}: found {tuple(tensor.shape)}, expected the shape {expected}")
        return tensor.float()

    def _shape(self, name: str) -> tuple[int, int]:
        rows, columns = self.architecture.shapes(name)
        return rows, columns

    @property
    def nbytes(self) -> int:
        """The memory of the weights."""
        parts: list[Matrix | Tensor] = [*self._matrices.values(), *self._tables, *self._vectors.values()]
        return sum({id(part): part.nbytes for part in parts}.values())

    @property
    def is_uniform(self) -> bool:
        """Whether sequences share products on this machine."""
        return all(self._matrices[name].is_uniform for name in self._matrices if name[0] in _MULTIPLY)

    def cache(self, capacity: int) -> Cache:
        """Return an empty cache for a sequence of at most *capacity* tokens."""
        return Cache(self.architecture, self.last - self.first, capacity)

    def begin(self, parts: Sequence[SequencePart]) -> Pass:
        """Return a pass of *parts*. Raises ValueError if a cache has no room for its tokens."""
        if len({id(part.cache) for part in parts}) != len(parts):
            raise ValueError("parts: found two of one sequence, expected one")
        for part in parts:
            if not 0 < len(part.inputs) <= part.cache.capacity - part.cache.length:
                room = part.cache.capacity - part.cache.length
                raise ValueError(f"inputs: found {len(part.inputs)} tokens, expected 1 to the {room} that have room")
        return Pass(parts, self.architecture, self._rotation)

    @torch.no_grad()
    def forward(self, parts: Sequence[SequencePart], last: Sequence[int] | None = None) -> list[Tensor]:
        """Return for each part the stream (n, width) for the next share, or the logits (n, vocabulary); with *last*
        those of as many of its last tokens.

        The caches then hold the tokens of *parts*. Raises ValueError, before any cache changes, if one has no room.
        """
        if not parts:
            return []
        now = self.begin(parts)
        stream = self._embedded(now) if self.embeds else torch.cat([part.inputs for part in parts])
        for layer in range(self.first, self.last):
            stream = stream + self._attention(layer, stream, now)
            stream = stream + self._feed_forward(layer, stream, now)
        now.end()
        rows = list(torch.split(stream, now.counts))
        if not self.ends:
            return rows
        if last is not None:
            rows = [one[len(one) - count :] for one, count in zip(rows, last, strict=True)]
        counts = [len(one) for one in rows]
        return list(torch.split(self._logits(torch.cat(rows), counts), counts))

    def _embedded(self, now: Pass) -> Tensor:
        tokens = torch.cat([part.inputs for part in now.parts]).long()
        stream = looked_up(self._tables, tokens)
        return stream if self._rotation else stream + self._matrices["position", None].rows(now.positions)

    def _norm(self, name: str, layer: int | None, stream: Tensor) -> Tensor:
        weight, size = self._vectors[name, layer], (self.architecture.width,)
        if self._rotation is None:
            return functional.layer_norm(stream, size, weight, eps=self.architecture.epsilon)
        return functional.rms_norm(stream, size, weight, eps=self.architecture.epsilon)

    def _attention(self, layer: int, stream: Tensor, now: Pass) -> Tensor:
        sizes = self.architecture
        inputs = self._norm("norm_attention", layer, stream)
        heads = self._matrices["heads", layer].product(inputs, now.counts).view(len(stream), -1, sizes.head_width)
        turned = heads[:, : sizes.heads + sizes.kv_heads]
        if now.angles is not None:
            turned = rotated(turned, now.angles)
        query, key, value = turned[:, : sizes.heads], turned[:, sizes.heads :], heads[:, turned.shape[1] :]
        mixed = now.attended(layer - self.first, query, key, value)
        return self._matrices["merge", layer].product(mixed, now.counts)

    def _feed_forward(self, layer: int, stream: Tensor, now: Pass) -> Tensor:
        inner = self._matrices["up", layer].product(self._norm("norm_feed", layer, stream), now.counts)
        if self.architecture.gated:
            gate, up = inner.chunk(2, dim=-1)
            inner = functional.silu(gate) * up
        else:
            inner = functional.gelu(inner)
        return self._matrices["down", layer].product(inner, now.counts)

    def _logits(self, stream: Tensor, counts: Sequence[int]) -> Tensor:
        return self._matrices["head", None].product(self._norm("norm", None, stream), counts)


_HEADS = ("query", "key", "value")
_MULTIPLY = ("heads", "merge", "up", "down", "head")
