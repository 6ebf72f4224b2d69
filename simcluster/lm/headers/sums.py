"""The tensors of a model's files, summed by what reads them. Names are those of GGUF and of Hugging Face."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from simcluster.lm.files.error import ModelFileError
from simcluster.lm.files.pieces import FileTensor
from simcluster.lm.plan.shape import ModelShape

MOST_OFF: Final = 0.001
"""How far the weights of a config.json may be from those of the tensors, as a share."""

FLOATS: Final = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")
"""Types of safetensors with a number for every weight; others pack several."""

LAYER: Final = re.compile(r"(?:^|\.)(?:layers|blocks|blk|h)\.(\d+)\.(.+)")
IN_LAYER: Final = (
    ("left out", r"inv_freq|masked_bias|rotary_emb|^(attn|attention)\.bias$"),  # masks, as GPT-2's files have
    ("others", r"norm|(^|\.)ln_|sinks"),
    ("routed", r"\.experts\.|_exps\b|ffn_(gate|up|down)\.\d+\.|sparse_moe\.(in|out)put_linear"),
    ("attention", r"^(\w+\.)?(self_)?att"),
    ("feed", r"mlp|ffn|feed_forward|moe|fc\d|exp_probs|shared_expert"),
)
OUTSIDE: Final = (
    ("table", r"embed_tokens|wte|embed_in|token_embd\.weight|word_embeddings\.weight"),
    ("head", r"lm_head\.|embed_out|^output\.weight"),
    ("first", r"wpe|embed_positions|position_embd|embd_norm|embeddings_layernorm"),
    ("last", r"norm|ln_f|rope_|^output\.bias"),
)
"""What reads a tensor -> the names of its tensors in a layer, without the layer, and outside of the layers."""


@dataclass(frozen=True)
class TensorSums:
    """Counts and bytes of all tensors by what reads them."""

    counts: Mapping[str, int]
    nbytes: Mapping[str, int]


def summed(tensors: Mapping[str, FileTensor], layers: int, file: object) -> TensorSums:
    """Return the sums of *tensors*, by name, of a model with *layers*. Further layers, which guess, count as an end.

    Raises ModelFileError, about *file*, for a tensor that no known decoder has, and for a layer that lacks one.
    """
    counts, nbytes, names = Counter[str](), Counter[str](), defaultdict[int, set[str]](set)
    for name, place in tensors.items():
        role, layer, rest = _role(name)
        if layer is not None and layer >= layers:
            role = "last"
        if role is None:
            raise ModelFileError(file, name[:60], "a tensor of no known decoder", "attention, experts, MLPs and norms")
        if role == "left out":
            continue
        if layer is not None and role != "last":
            names[layer].add(rest)
        counts[role] += place.count
        nbytes[role] += place.nbytes
    _complete(names, layers, file)
    return TensorSums(counts, nbytes)


def with_sums(shape: ModelShape, sums: TensorSums) -> ModelShape:
    """Return *shape* with the counts of *sums*, which are those of the weights."""
    assert shape.counts is not None, "it has the numbers of experts"
    names = ("attention", "feed", "others", "first", "last", "routed")
    counts = replace(shape.counts, **{name: sums.counts[name] for name in names})
    return _with_bytes(replace(shape, counts=counts), sums)


def measured(shape: ModelShape, tensors: Mapping[str, FileTensor], file: object) -> ModelShape:
    """Return *shape*, of a config, as the *tensors* have it. Raise ModelFileError if they contradict it."""
    sums = summed(tensors, shape.layers, file)
    tied = not sums.counts["head"]
    if tied and not shape.tied:
        raise ModelFileError(file, "lm_head.weight", "no such tensor", "one, as tie_word_embeddings is not true")
    shape = replace(shape, tied=tied)
    if any(one.kind not in FLOATS for one in tensors.values()):
        return _with_bytes(shape, sums)
    total = sum(sums.counts.values())
    if abs(total - shape.weights) > MOST_OFF * shape.weights:
        raise ModelFileError(file, "weights", f"{total:,} in the tensors", f"{shape.weights:,} by config.json")
    return with_sums(shape, sums)


def _with_bytes(shape: ModelShape, sums: TensorSums) -> ModelShape:
    """Return *shape* with the bytes per weight of *sums*."""
    parts, nbytes = shape.parts, sums.nbytes
    tables = (2 - shape.tied) * shape.vocabulary * shape.width
    plain = sum(nbytes[name] for name in ("attention", "feed", "others", "first", "last"))
    return replace(
        shape,
        weight_bytes=plain / (parts.whole - parts.routed),
        table_bytes=(nbytes["table"] + nbytes["head"]) / tables,
        expert_bytes=nbytes["routed"] / parts.routed if parts.routed else None,
    )


def _role(name: str) -> tuple[str | None, int | None, str]:
    """Return what reads the tensor *name*, its layer, and its name there."""
    layer = LAYER.search(name)
    table, number, rest = (OUTSIDE, None, name) if layer is None else (IN_LAYER, int(layer[1][:6]), layer[2])
    return next((role for role, names in table if re.search(names, rest)), None), number, rest


def _complete(names: Mapping[int, set[str]], layers: int, file: object) -> None:
    """Raise ModelFileError for a layer without a tensor that all like it have: those with experts, or without."""
    like: dict[bool, set[str]] = defaultdict(set)
    for found in names.values():
        like[_has_experts(found)] |= found
    for layer in range(layers):
        found = names.get(layer, set())
        missing = sorted(like[_has_experts(found)] - found) or ([] if found else ["tensor"])
        if missing:
            key = f"layer {layer}: {missing[0][:60]}"
            raise ModelFileError(file, key, "no such tensor", "one, as other layers have")


def _has_experts(names: Iterable[str]) -> bool:
    return any(re.search(IN_LAYER[2][1], name) for name in names)
