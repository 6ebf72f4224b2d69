"""Tiny models as quantised folders. Integers are packed here as Python's, not by the reader's code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.support.tiny_models import saved

Packer = Callable[[str, Tensor], tuple[dict[str, Tensor], Tensor]]
"""(name without `.weight`, matrix) -> (its tensors in the folder, the matrix that they stand for)."""

GROUP = 32


def in_words(rows: Tensor, bits: int, dtype: type[np.unsignedinteger[Any]] = np.uint32) -> Tensor:
    """Return the numbers in each of *rows* as words: the row is one integer, lowest number first."""
    octets = rows.shape[-1] * bits // 8
    found = []
    for row in rows.reshape(-1, rows.shape[-1]).tolist():
        found.append(sum(number << bits * place for place, number in enumerate(row)).to_bytes(octets, "little"))
    words = np.frombuffer(b"".join(found), dtype).copy()
    return torch.from_numpy(words).view(*rows.shape[:-1], -1)


def rounded(matrix: Tensor, bits: int, group: int = GROUP) -> tuple[Tensor, Tensor, Tensor]:
    """Return (integers, scales, least numbers) of *matrix*; the last two per group of a row."""
    grouped = matrix.reshape(*matrix.shape[:-1], -1, group)
    least = grouped.amin(-1)
    scales = ((grouped.amax(-1) - least) / (2**bits - 1)).half().float()
    numbers = ((grouped - least[..., None]) / scales[..., None]).round().clamp(0, 2**bits - 1)
    return numbers.to(torch.int64), scales, least


def mlx(bits: int, others: dict[str, int] | None = None) -> Packer:
    """Pack with *bits*; names that end like a key of *others* with its bits."""

    def pack(stem: str, matrix: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        own = next((found for end, found in (others or {}).items() if stem.endswith(end)), bits)
        numbers, scales, least = rounded(matrix, own)
        whole = (numbers * scales[..., None] + least[..., None]).view(matrix.shape)
        words = in_words(numbers.view(matrix.shape), own)
        return {f"{stem}.weight": words, f"{stem}.scales": scales, f"{stem}.biases": least}, whole

    return pack


def _transposed(matrix: Tensor, bits: int, order: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return integers (columns, rows), scales and zero points (groups, rows), and the matrix they stand for.

    The columns of a group are neighbours after they are sorted by *order*.
    """
    order = torch.arange(matrix.shape[1]) if order is None else order
    numbers, scales, least = rounded(matrix[:, order], bits)
    zeros = (-least / scales).round().clamp(1, 2**bits - 1).to(torch.int64)
    integers = ((matrix[:, order].view(numbers.shape) / scales[..., None]).round() + zeros[..., None]).clamp(
        0, 2**bits - 1
    )
    whole = ((integers - zeros[..., None]) * scales[..., None]).view(matrix.shape)
    back = torch.argsort(order)
    return integers.view(matrix.shape)[:, back].to(torch.int64).T, scales.T, zeros.T, whole[:, back]


def gptq(bits: int, less: int = 1, shuffled: bool = False) -> Packer:
    def pack(stem: str, matrix: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        columns = matrix.shape[1]
        order = torch.randperm(columns, generator=torch.Generator().manual_seed(columns)) if shuffled else None
        integers, scales, zeros, whole = _transposed(matrix, bits, order)
        groups = (torch.arange(columns) if order is None else torch.argsort(order)) // GROUP
        return {
            f"{stem}.qweight": in_words(integers.T, bits).T.view(torch.int32),
            f"{stem}.qzeros": in_words(zeros - less, bits).view(torch.int32),
            f"{stem}.scales": scales.half(),
            f"{stem}.g_idx": groups.to(torch.int32),
        }, whole

    return pack


def awq(stem: str, matrix: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    integers, scales, zeros, whole = _transposed(matrix, 4)

    def packed(rows: Tensor) -> Tensor:
        # The i-th number of a word is the column with the i-th place of these.
        ordered = rows.reshape(len(rows), -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]]
        return in_words(ordered.reshape(rows.shape), 4).view(torch.int32)

    return {
        f"{stem}.qweight": packed(integers), f"{stem}.qzeros": packed(zeros), f"{stem}.scales": scales.half()
    }, whole  # fmt: skip


def mxfp4(stem: str, experts: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    rows = experts.transpose(1, 2).reshape(len(experts), experts.shape[2], -1, 32)
    codes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    exponents = torch.log2(rows.abs().amax(-1) / 6).ceil()
    chosen = ((rows / 2 ** exponents[..., None])[..., None] - codes).abs().argmin(-1)
    whole = (codes[chosen] * 2 ** exponents[..., None]).flatten(2).transpose(1, 2)
    blocks = in_words(chosen, 4, np.uint8)
    return {f"{stem}_blocks": blocks, f"{stem}_scales": (exponents + 127).to(torch.uint8)}, whole


def fp8(height: int, width: int) -> Packer:
    def pack(stem: str, matrix: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        rows, columns = matrix.shape
        scales = torch.zeros(-(-rows // height), -(-columns // width))
        numbers = torch.zeros(matrix.shape, dtype=torch.float8_e4m3fn)
        whole = torch.zeros(matrix.shape)
        for down in range(len(scales)):
            for across in range(scales.shape[1]):
                block = (slice(down * height, (down + 1) * height), slice(across * width, (across + 1) * width))
                scales[down, across] = matrix[block].abs().max() / 448
                numbers[block] = (matrix[block] / scales[down, across]).to(torch.float8_e4m3fn)
                whole[block] = numbers[block].float() * scales[down, across]
        return {f"{stem}.weight": numbers, f"{stem}.weight_scale_inv": scales}, whole

    return pack


MATRICES = r"(_proj|_proj\.weight|w[123]\.weight)$"
TABLES = r"(embed_tokens|lm_head)\.weight$"
EXPERTS = r"experts\.(gate_up|down)_proj$"


def write_quantised(path: Path, model: Any, pack: Packer, settings: dict[str, Any], packed: str = MATRICES) -> Path:
    """Write *model* as a folder with *settings* in its config.json, and tensors with *packed* names packed.

    *model* itself then has the stored numbers.
    """
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(model.config.to_dict() | settings, default=str))
    tensors: dict[str, Tensor] = {}
    for name, one in _stacked(model) if "quantization" in settings else saved(model):
        if re.search(packed, name):
            members, whole = pack(name.removesuffix(".weight"), one)
            one.copy_(whole)
            tensors |= members
        else:
            tensors[name] = one
    save_file({name: one.contiguous() for name, one in tensors.items()}, path / "model.safetensors")
    return path


def _stacked(model: Any) -> list[tuple[str, Tensor]]:
    """Return the tensors of *model* by MLX's names: one for all experts of a layer."""
    found = []
    for name, one in model.named_parameters():
        own = name.replace(".mlp.", ".block_sparse_moe.") if model.config.model_type == "mixtral" else name
        if "experts.gate_up_proj" in own:
            halves = zip(("gate_proj", "up_proj"), one.chunk(2, dim=1), strict=True)
            found += [(own.replace("experts.gate_up_proj", f"switch_mlp.{half}.weight"), view) for half, view in halves]
        elif "experts.down_proj" in own:
            found.append((own.replace("experts.down_proj", "switch_mlp.down_proj.weight"), one))
        else:
            found.append((own, one))
    return found
