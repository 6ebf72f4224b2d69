"""Weights in 8 or 4 bits, with torch's kernels for them.

The kernels take inputs and give outputs in bf16; sums are f32. A matrix of 4 bits has a scale and a
zero point per group of 32 weights, one of 8 bits a scale per row. Embedding tables, and matrices
that the 4-bit kernel does not take, have 8 bits in both formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn

GROUP: Final = 32
"""Number of weights that share a scale and a zero point."""

BLOCK_ROWS: Final = 64
"""Number of rows that are packed at a time, a multiple of the kernel's own blocks."""

FEW: Final = 0.01
"""Weights count as already rounded to 4 bits if this share of groups fits 16 equidistant values."""

COLUMNS_UNIT: Final = 16
_ROWS_UNIT: Final = 16
_TINY: Final = torch.finfo(torch.float32).tiny


class QuantisedRows(Protocol):
    """A matrix (rows, columns) of quantised weights."""

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that hold the weights."""

    def times(self, inputs: Tensor) -> Tensor:
        """Return *inputs* (n, columns) times the transposed weights, (n, rows), in f32."""


class Int8Rows:
    """The rows in *pieces* (f32) as whole numbers from -127 to 127, with a scale per row.

    Rows are padded with zeros to a multiple of COLUMNS_UNIT; otherwise torch's kernel would read
    beyond their end.
    """

    def __init__(self, pieces: Iterable[Tensor], shape: Sequence[int], device: torch.device) -> None:
        rows, self._columns = shape
        filled = -(-self._columns // COLUMNS_UNIT) * COLUMNS_UNIT
        self.numbers = torch.zeros(rows, filled, dtype=torch.int8, device=device)
        self.scales = torch.empty(rows, device=device)
        first = 0
        for piece in pieces:
            own = slice(first, first + len(piece))
            # A scale is never 0, so that rows of zeros can be divided by it.
            scales = piece.abs().amax(dim=1).clamp(min=_TINY) / 127
            self.scales[own] = scales
            self.numbers[own, : self._columns] = (piece / scales[:, None]).round().clamp(-127, 127)
            first += len(piece)
        self._ones = torch.ones(rows, dtype=torch.bfloat16, device=device)

    @property
    def tensors(self) -> list[Tensor]:
        return [self.numbers, self.scales]

    def part(self, first: int, last: int) -> Int8Rows:
        """Return the rows [*first*, *last*), which share this matrix's memory."""
        found = object.__new__(Int8Rows)
        found.numbers = self.numbers[first:last]
        found.scales = self.scales[first:last]
        found._ones = self._ones[first:last]
        found._columns = self._columns
        return found

    def looked_up(self, places: Tensor) -> Tensor:
        """Return the rows with the indices *places*, in f32."""
        return self.numbers[places][..., : self._columns].float() * self.scales[places][..., None]

    def times(self, inputs: Tensor) -> Tensor:
        if inputs.device.type != "cpu":
            weights = self.numbers[:, : self._columns].to(inputs.dtype)
            return nn.functional.linear(inputs, weights) * self.scales
        filled = nn.functional.pad(inputs.bfloat16(), (0, self.numbers.shape[1] - self._columns))
        found: Tensor = torch._weight_int8pack_mm(filled, self.numbers, self._ones)
        return found.float() * self.scales


class Int4Rows:
    """The rows in *pieces* (f32) as numbers of 4 bits, on a CPU, in shapes that `takes` accepts."""

    def __init__(self, pieces: Iterable[Tensor], shape: Sequence[int]) -> None:
        packed = []
        scales = []
        for block in _blocks(pieces):
            numbers, both = _four_bits(block)
            packed.append(torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 1))
            scales.append(both)
        self._packed = torch.cat(packed)
        self._scales = torch.cat(scales, dim=1)
        assert self._scales.shape[1] == shape[0], "all rows"

    @property
    def tensors(self) -> list[Tensor]:
        return [self._packed, self._scales]

    def times(self, inputs: Tensor) -> Tensor:
        found: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(inputs.bfloat16(), self._packed, GROUP, self._scales)
        return found.float()


def takes(shape: Sequence[int], device: torch.device) -> bool:
    """Return whether the 4-bit kernel takes a matrix of *shape* on *device*."""
    return device.type == "cpu" and shape[0] % _ROWS_UNIT == 0 and shape[1] % GROUP == 0


def _blocks(pieces: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the rows of *pieces* in blocks of BLOCK_ROWS; the last one may have fewer."""
    waiting = list[Tensor]()
    count = 0
    for piece in pieces:
        waiting.append(piece)
        count += len(piece)
        if count >= BLOCK_ROWS:
            rows = torch.cat(waiting)
            whole = count - count % BLOCK_ROWS
            yield from torch.split(rows[:whole], BLOCK_ROWS)
            waiting = [rows[whole:]]
            count -= whole
    if count:
        yield torch.cat(waiting)


def _four_bits(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return (numbers from 0 to 15, scales and zero points) of *rows*.

    The kernel computes (number - 8) * scale + zero.
    """
    grouped = rows.view(len(rows), -1, GROUP)
    least = grouped.amin(dim=2, keepdim=True)
    scale = _steps(grouped - least).clamp(min=_TINY).bfloat16().float().clamp(min=_TINY)
    numbers = ((grouped - least) / scale).round().clamp(0, 15).to(torch.int32)
    both = torch.cat([scale, least + 8 * scale], dim=2)
    return numbers.view(rows.shape), both.transpose(0, 1).bfloat16().contiguous()


def _steps(above: Tensor) -> Tensor:
    """Return the step between neighbouring numbers of each group of *above*, which starts at 0.

    Weights from a file in 4 bits are already multiples of a step. That step is kept, since any
    other would round them a second time.
    """
    steps = above.amax(dim=2) / 15
    has_all = _is_multiple(above, steps)
    if has_all.float().mean() < FEW:
        return steps[..., None]
    # The step of a group that lacks the first or the last of the 16 numbers is more than range /
    # 15.
    places = torch.nonzero(~has_all)
    for count in range(14, 3, -1):
        rest = above[places[:, 0], places[:, 1]]
        step = rest.amax(dim=1) / count
        found = _is_multiple(rest, step)
        steps[places[found, 0], places[found, 1]] = step[found]
        places = places[~found]
    return steps[..., None]


def _is_multiple(numbers: Tensor, step: Tensor) -> Tensor:
    """Return whether all of each group's *numbers* are multiples of its *step*."""
    counts = numbers / step[..., None]
    return (counts - counts.round()).abs().amax(dim=-1) < 0.02


class QuantisedLinear(nn.Module):
    """A linear layer with quantised *weights*, and a *bias* if there is one."""

    def __init__(self, weights: QuantisedRows, bias: nn.Parameter | None = None) -> None:
        super().__init__()
        self.weights = weights
        self.bias = bias

    def forward(self, inputs: Tensor) -> Tensor:
        flat = self.weights.times(inputs.reshape(-1, inputs.shape[-1]))
        found = flat.view(*inputs.shape[:-1], flat.shape[-1])
        return found if self.bias is None else found + self.bias


class QuantisedTable(nn.Module):
    """An embedding table with quantised *weights*, which replaces the module *table*."""

    def __init__(self, weights: Int8Rows, table: nn.Module) -> None:
        super().__init__()
        self.weights = weights
        self.scale = getattr(table, "scalar_embed_scale", None)

    def forward(self, tokens: Tensor) -> Tensor:
        found = self.weights.looked_up(tokens)
        return found if self.scale is None else found * self.scale


class QuantisedExperts(nn.Module):
    """The experts of a layer with quantised weights, which replace the module *experts*.

    *rows* makes a quantised matrix of (rows, columns). The parameters of *experts* have values, and
    the first dimension is the expert. Biases stay as they are.
    """

    def __init__(self, experts: Any, rows: Callable[[Tensor], QuantisedRows]) -> None:
        super().__init__()
        # gpt-oss stores its matrices transposed, and has biases and a special gate.
        self._gate = getattr(experts, "_apply_gate", None)
        self._act = getattr(experts, "act_fn", None)
        turned = hasattr(experts, "gate_up_proj_bias")
        self.gate_up = [rows(one.T.contiguous() if turned else one) for one in experts.gate_up_proj]
        self.down = [rows(one.T.contiguous() if turned else one) for one in experts.down_proj]
        self.gate_up_bias = experts.gate_up_proj_bias if turned else None
        self.down_bias = experts.down_proj_bias if turned else None

    @property
    def tensors(self) -> list[Tensor]:
        return [tensor for one in (*self.gate_up, *self.down) for tensor in one.tensors]

    def forward(self, inputs: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Return for each row the sum of its *chosen* experts' outputs, times their *weights*."""
        total = torch.zeros_like(inputs)
        for expert in torch.unique(chosen).tolist():
            tokens, places = torch.where(chosen == expert)
            inner = self.gate_up[expert].times(inputs[tokens])
            if self.gate_up_bias is not None:
                inner = inner + self.gate_up_bias[expert]
            outputs = self.down[expert].times(self._gated(inner))
            if self.down_bias is not None:
                outputs = outputs + self.down_bias[expert]
            total.index_add_(0, tokens, outputs * weights[tokens, places, None])
        return total

    def _gated(self, inner: Tensor) -> Tensor:
        if self._gate is not None:
            found: Tensor = self._gate(inner)
            return found
        assert self._act is not None, "experts without a gate of their own have an activation"
        gate, up = inner.chunk(2, dim=-1)
        return torch.mul(self._act(gate), up)
