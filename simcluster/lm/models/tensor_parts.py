"""The tensors of a file that fill each parameter of a transformers model.

Most parameters are one tensor of the same shape. Experts are one parameter here and a tensor per
expert or per matrix in files; GGUF files have other names, and store some tensors differently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from torch import Tensor

GGUF_NAMES: Final = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen2_moe": "qwen2moe",
    "qwen3": "qwen3", "qwen3_moe": "qwen3moe", "gemma": "gemma", "gemma2": "gemma2", "gemma3_text": "gemma3",
    "phi3": "phi3", "smollm3": "smollm3", "gpt_oss": "gpt-oss",
}  # fmt: skip
"""`model_type` of a config.json -> `general.architecture` of a GGUF file."""

PAIRED: Final = ("llama", "mistral", "mixtral", "smollm3")
"""Families for which GGUF files store the rows of queries and keys in rotated pairs."""

Place = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class TensorPart:
    """The tensor *key* of a file, or its rows from *first* on, as a part of a parameter.

    *place* returns the view of a parameter that has the tensor's shape. If *shared*, the tensor has
    more rows than the view. *change* converts *unit* rows, or a multiple of them, at a time.
    """

    key: str
    place: Place = Tensor.detach
    first: int = 0
    shared: bool = False
    change: Callable[[Tensor], Tensor] | None = None
    unit: int = 1


def folder_parts(name: str, config: Any, known: Container[str]) -> list[TensorPart]:
    """Return the tensors of a Hugging Face folder that fill the parameter *name*.

    *known* has the names of all tensors of the folder.
    """
    if name == "lm_head.weight" and config.tie_word_embeddings:
        return [TensorPart("model.embed_tokens.weight")]
    mixtral = config.model_type == "mixtral"
    if mixtral and name not in known:
        name = name.replace(".mlp.", ".block_sparse_moe.")
    if name in known or not re.search(r"\.experts\.(gate_up|down)_proj$", name):
        return _fused(name, config) or [TensorPart(name)]
    experts, which = name.rsplit(".", 1)
    halves = ("gate_proj", "up_proj") if which == "gate_up_proj" else ("down_proj",)
    stacked = f"{experts.removesuffix('experts')}switch_mlp"  # MLX has one tensor for all experts
    if f"{stacked}.down_proj.weight" in known:
        places = [_half(0), _half(1)] if len(halves) == 2 else [Tensor.detach]
        return [TensorPart(f"{stacked}.{half}.weight", place) for half, place in zip(halves, places, strict=True)]
    names = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"} if mixtral else {}
    found = []
    for expert in range(config.num_experts):
        for number, half in enumerate(halves):
            place = _expert(expert, number if len(halves) == 2 else None)
            found.append(TensorPart(f"{experts}.{expert}.{names.get(half, half)}.weight", place))
    return found


def gguf_parts(name: str, config: Any) -> list[TensorPart]:
    """Return the tensors of a GGUF file that fill the parameter *name*."""
    kind = config.model_type
    if name == "lm_head.weight" and config.tie_word_embeddings:
        return [TensorPart("token_embd.weight")]
    if ".experts." in name:
        return list(_gguf_experts(name, kind))
    # Only gpt-oss's attention sinks have neither ending.
    stem, ending = name.rsplit(".", 1) if name.endswith((".weight", ".bias")) else (name, "weight")
    key = f"{_gguf_names(kind, config.num_hidden_layers).get_name(stem)}.{ending}"
    if kind == "phi3" and (fused := _fused(name, config)):
        return [TensorPart(key, one.place, one.first, shared=True) for one in fused]
    if kind in PAIRED and re.search(r"\.(q|k)_proj\.", name):
        return [TensorPart(key, change=lambda rows: _in_halves(rows, config.head_dim), unit=config.head_dim)]
    if kind.startswith("gemma") and name.endswith("norm.weight"):
        # llama.cpp multiplies by the stored number, Gemma's own code by 1 more than its weight.
        return [TensorPart(key, change=lambda rows: rows - 1)]
    if name.endswith("shared_expert_gate.weight"):
        return [TensorPart(key, place=lambda whole: whole[0])]
    return [TensorPart(key)]


@lru_cache(maxsize=16)
def _gguf_names(kind: str, layers: int) -> Any:
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    (number,) = (key for key, value in MODEL_ARCH_NAMES.items() if value == GGUF_NAMES[kind])
    return get_tensor_name_map(number, layers)


def _gguf_experts(name: str, kind: str) -> Iterator[TensorPart]:
    layer = name.split(".")[2]
    bias = name.endswith("_bias")
    ending = "bias" if bias else "weight"
    interleaved = kind == "gpt_oss"
    if "down_proj" in name:
        turns = interleaved and not bias
        yield TensorPart(f"blk.{layer}.ffn_down_exps.{ending}", _transposed if turns else Tensor.detach)
        return
    for number, half in enumerate(("gate", "up")):
        place = _interleaved(number, bias) if interleaved else _half(number)
        yield TensorPart(f"blk.{layer}.ffn_{half}_exps.{ending}", place)


def _fused(name: str, config: Any) -> list[TensorPart]:
    """Return the parts of a fused matrix, which shards split separately, or [] for others."""
    if config.model_type != "phi3" or not re.search(r"\.(qkv|gate_up)_proj\.", name):
        return []
    if "qkv" in name:
        counts = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
        sizes = [count * config.head_dim for count in counts]
    else:
        sizes = [config.intermediate_size] * 2
    return row_parts(name, sizes)


def row_parts(key: str, sizes: Sequence[int]) -> list[TensorPart]:
    """Return the parts of the tensor *key*, of *sizes* rows; shards split each separately."""
    begins = [sum(sizes[:number]) for number in range(len(sizes))]
    return [TensorPart(key, _rows(begin, size), begin, shared=True) for begin, size in zip(begins, sizes, strict=True)]


def _rows(begin: int, count: int) -> Place:
    return lambda whole: whole[begin : begin + count]


def _half(number: int) -> Place:
    """Return a function that views the gates (0) or the ups (1) of all experts."""
    return lambda whole: whole.chunk(2, dim=1)[number]


def _expert(expert: int, half: int | None) -> Place:
    return lambda whole: whole[expert] if half is None else whole[expert].chunk(2)[half]


def _transposed(whole: Tensor) -> Tensor:
    return whole.transpose(1, 2)


def _interleaved(number: int, bias: bool) -> Place:
    # gpt-oss stores matrices transposed, with gates and ups in alternating columns.
    return lambda whole: whole[..., number::2] if bias else whole[..., number::2].transpose(1, 2)


def _in_halves(rows: Tensor, width: int) -> Tensor:
    """Return *rows* of whole heads with the pairs of each head split.

    All first numbers of a head come first, then all second ones.
    """
    paired = rows.view(-1, width // 2, 2, *rows.shape[1:])
    return paired.transpose(1, 2).reshape(rows.shape)
