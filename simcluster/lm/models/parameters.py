"""Read the part of a model's weights that a share needs, a few rows at a time, into its modules."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn

from simcluster.lm.formats import Precision
from simcluster.lm.models.quantised import (
    Int4Rows,
    Int8Rows,
    QuantisedExperts,
    QuantisedLinear,
    QuantisedRows,
    QuantisedTable,
    takes,
)
from simcluster.lm.models.tensor_parts import Place, TensorPart
from simcluster.lm.plan.shape import ModelShape

PIECE_BYTES: Final = 2**20
"""Weights are read in pieces of about this many f32 bytes, so that no whole matrix is in f32."""

SUMMED_BIASES: Final = ("o_proj.bias", "down_proj.bias", "down_proj_bias")
"""Endings of biases that are added to a sum over shards: only the first shard has them."""

NUMBER_TYPES: Final[Mapping[str, torch.dtype]] = {"bf16": torch.bfloat16, "f16": torch.float16}
"""Precision -> the type of the numbers that a model computes with; f32 if it is not listed."""

QUANTISED: Final = ("int8", "q4")
HEAD, TABLE, POSITIONS = "lm_head", "model.embed_tokens", "model.position"


@dataclass(frozen=True, slots=True)
class LayerSpan:
    """Shard *place* of *count* of the layers [*first*, *last*), in a model with *layers* layers."""

    first: int
    last: int
    layers: int
    place: int = 0
    count: int = 1

    @property
    def embeds(self) -> bool:
        return self.first == 0

    @property
    def ends(self) -> bool:
        return self.last == self.layers

    def has(self, module: str) -> bool:
        """Return whether the share has the module of this name."""
        if found := re.match(r"model\.layers\.(\d+)\.", module):
            return self.first <= int(found[1]) < self.last
        return self.embeds if module in (TABLE, POSITIONS) else self.ends


class WeightSource(Protocol):
    """A model's file, as an interface for code that fills modules with weights; see `ModelFile`."""

    shape: ModelShape
    config: Any

    @property
    def parameters(self) -> Mapping[str, Tensor]: ...

    def skeleton(self, place: int = 0, count: int = 1) -> nn.Module: ...

    def parts(self, name: str, config: Any) -> list[TensorPart]: ...

    def read(self, key: str, first: int, last: int) -> Tensor: ...


class WeightReader:
    """A reader of the weights of *file* for the shard *span*; *config* has the shard's sizes."""

    def __init__(self, file: WeightSource, config: Any, span: LayerSpan) -> None:
        self._file = file
        self._config = config
        self._span = span

    def fill(self, name: str, out: Tensor) -> None:
        """Write this shard's numbers of the parameter *name* to *out*."""
        if self._span.place and name.endswith(SUMMED_BIASES):
            out.zero_()
            return
        for place, part, full in self._parts(name):
            view = place(out)
            for first, piece in self._pieces(part, view.shape, full):
                view[first : first + len(piece)] = piece

    def rows(self, name: str, shape: torch.Size) -> Iterator[Tensor]:
        """Yield the rows of the parameter *name*, of *shape* in this shard, in pieces in f32."""
        parts = self._parts(name)
        if len(parts) > 1:
            # Parts of a matrix need not be whole rows of it, nor in order.
            whole = torch.empty(shape)
            self.fill(name, whole)
            yield whole
            return
        ((_, part, full),) = parts
        yield from (piece for _, piece in self._pieces(part, shape, full))

    def _parts(self, name: str) -> list[tuple[Place, TensorPart, torch.Size]]:
        """Return (view in the shard, part, its shape) for each part of the parameter *name*.

        The part and its shape are those in the whole model.
        """
        like = self._file.parameters[name]
        whole = self._file.parts(name, self._file.config)
        own = whole if self._span.count == 1 else self._file.parts(name, self._config)
        return [(one.place, part, part.place(like).shape) for one, part in zip(own, whole, strict=True)]

    def _pieces(self, part: TensorPart, shape: torch.Size, full: torch.Size) -> Iterator[tuple[int, Tensor]]:
        """Yield (first row, rows in f32) of the numbers of *part* that fill a view of *shape*.

        The part has the shape *full* in the whole model. Shards split each dimension that is larger
        in *full*.
        """
        span = self._span
        begins = [0 if own == most else most * span.place // span.count for own, most in zip(shape, full, strict=True)]
        columns = tuple(slice(begin, begin + own) for begin, own in zip(begins[1:], shape[1:], strict=True))
        step = max(1, PIECE_BYTES // (4 * part.unit * math.prod(full[1:]))) * part.unit
        for first in range(0, shape[0], step):
            last = min(shape[0], first + step)
            offset = part.first + begins[0]
            piece = self._file.read(part.key, offset + first, offset + last).reshape(-1, *full[1:])
            if part.change is not None:
                piece = part.change(piece)
            yield first, piece[(slice(None), *columns)]


class ModelFiller:
    """The model in *file*, filled with the weights of *span* in *precision* on *device*.

    Modules of *model* that the share lacks stay without values.
    """

    def __init__(self, file: WeightSource, span: LayerSpan, precision: Precision, device: torch.device) -> None:
        self.model: Any = file.skeleton(span.place, span.count)
        self._reader = WeightReader(file, self.model.config, span)
        self._span = span
        self._precision = precision
        self._device = device
        self.number_type = NUMBER_TYPES.get(precision, torch.float32)
        for name, module in list(self.model.named_modules()):
            if name != HEAD and span.has(name):
                self._fill(name, module)
        if span.ends:
            self._set_head()
        body: Any = self.model.model
        if body.rotary_emb is not None:
            body.rotary_emb.to(device)

    def _fill(self, name: str, module: nn.Module) -> None:
        """Read the parameters of *module*, except those of its submodules."""
        if self._precision in QUANTISED and isinstance(module, (nn.Linear, nn.Embedding)):
            self.model.set_submodule(name, self._quantised(name, module))
            return
        for key, like in list(module.named_parameters(recurse=False)):
            setattr(module, key, self._parameter(f"{name}.{key}", like))
        if self._precision in QUANTISED and name.endswith(".experts"):
            experts = QuantisedExperts(module, lambda one: self._rows([one], one.shape))
            self.model.set_submodule(name, experts)

    def _parameter(self, name: str, like: Tensor) -> nn.Parameter:
        found = torch.empty(like.shape, dtype=self.number_type, device=self._device)
        self._reader.fill(name, found)
        return nn.Parameter(found, requires_grad=False)

    def _quantised(self, name: str, module: nn.Linear | nn.Embedding) -> nn.Module:
        like = module.weight
        pieces = self._reader.rows(f"{name}.weight", like.shape)
        if isinstance(module, nn.Embedding):
            return QuantisedTable(Int8Rows(pieces, like.shape, self._device), module)
        bias = None if module.bias is None else self._parameter(f"{name}.bias", module.bias)
        if name == HEAD:
            return QuantisedLinear(Int8Rows(pieces, like.shape, self._device), bias)
        return QuantisedLinear(self._rows(pieces, like.shape), bias)

    def _rows(self, pieces: Iterable[Tensor], shape: torch.Size) -> QuantisedRows:
        """Return the rows in *pieces* in 4 bits if the precision is q4 and a kernel takes them.

        Otherwise return them in 8 bits.
        """
        if self._precision == "q4" and takes(shape, self._device):
            return Int4Rows(pieces, shape)
        return Int8Rows(pieces, shape, self._device)

    def _set_head(self) -> None:
        """Read this share's rows of the head. An embedding that is also the head is stored once."""
        head = self.model.lm_head
        rows = len(head.weight)
        first, last = (rows * place // self._span.count for place in (self._span.place, self._span.place + 1))
        if not (self.model.config.tie_word_embeddings and self._span.embeds):
            own = torch.empty(last - first, head.weight.shape[1], device="meta")
            head.weight = nn.Parameter(own, requires_grad=False)
            self._fill(HEAD, head)
        elif isinstance(table := self.model.model.embed_tokens, QuantisedTable):
            self.model.lm_head = QuantisedLinear(table.weights.part(first, last))
        else:
            head.weight = nn.Parameter(table.weight[first:last], requires_grad=False)

    def parameters(self) -> dict[str, Tensor]:
        """Return the parameters of this share by name, without quantised ones."""
        found = self.model.named_parameters(remove_duplicate=False)
        return {name: one for name, one in found if one.device.type != "meta"}

    @property
    def nbytes(self) -> int:
        """The memory of all numbers in bytes; an embedding that is also the head counts once."""
        tensors = list(self.parameters().values())
        for module in self.model.modules():
            if isinstance(module, (QuantisedLinear, QuantisedTable)):
                tensors += module.weights.tensors
            elif isinstance(module, QuantisedExperts):
                tensors += module.tensors
        stored = [one.untyped_storage() for one in tensors]
        return sum({one.data_ptr(): one.nbytes() for one in stored}.values())
