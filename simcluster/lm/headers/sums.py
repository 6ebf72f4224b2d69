"""The tensors of a model's files, summed by the part of the model that uses them.

The tensors may have GGUF's or Hugging Face's names.
"""

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
"""Maximum relative difference between the numbers of weights by config.json and by the tensors."""

FLOATS: Final = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")
"""Types of safetensors with one number per weight; numbers of other types pack several weights."""

LAYER: Final = re.compile(r"(?:^|\.)(?:layers|blocks|blk|h)\.(\d+)\.(.+)")
IN_LAYER: Final = (
    ("left out", r"inv_freq|masked_bias|rotary_emb|^(attn|attention)\.bias$"),  # masks, as GPT-2's files have
    ("others", r"norm|(^|\.)ln_|sinks"),
    ("routed", r"\.experts\.|switch_mlp|_exps\b|ffn_(gate|up|down)\.\d+\.|sparse_moe\.(in|out)put_linear"),
    ("attention", r"^(\w+\.)?(self_)?att"),
    ("feed", r"mlp|ffn|feed_forward|moe|fc\d|exp_probs|shared_expert"),
)
OUTSIDE: Final = (
    ("table", r"embed_tokens|wte|embed_in|token_embd\.weight|word_embeddings\.weight"),
    ("head", r"lm_head\.|embed_out|^output\.weight"),
    ("first", r"wpe|embed_positions|position_embd|embd_norm|embeddings_layernorm"),
    ("last", r"norm|ln_f|rope_|^output\.bias"),
)
"""(part of a model, pattern of its tensors' names), for tensors in a layer and outside layers."""


@dataclass(frozen=True)
class TensorSums:
    """The numbers and the bytes of all weights, by the part of the model that uses them."""

    counts: Mapping[str, int]
    nbytes: Mapping[str, int]


def summed(tensors: Mapping[str, FileTensor], layers: int, file: object) -> TensorSums:
    """Return the sums of *tensors*, which maps names to tensors, of a model with *layers* layers.

    Additional layers, which guess further tokens, count as "last". Raise ModelFileError, about
    *file*, if a tensor belongs to no known decoder, or if a layer lacks a tensor that similar
    layers have.
    """
    counts = Counter[str]()
    nbytes = Counter[str]()
    names = defaultdict[int, set[str]](set)
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
    """Return *shape* with the counts and bytes of *sums*, where each number is one weight."""
    assert shape.counts is not None, "it has the numbers of experts"
    names = ("attention", "feed", "others", "first", "last", "routed")
    counts = replace(shape.counts, **{name: sums.counts[name] for name in names})
    return _with_bytes(replace(shape, counts=counts), sums)


def measured(shape: ModelShape, tensors: Mapping[str, FileTensor], file: object) -> ModelShape:
    """Return *shape*, which comes from a config, with the counts and bytes of *tensors*.

    Raise ModelFileError, about *file*, if *tensors* contradict the config.
    """
    sums = summed(tensors, shape.layers, file)
    tied = not sums.counts["head"]
    if tied and not shape.tied:
        raise ModelFileError(file, "lm_head.weight", "no such tensor", "one, as tie_word_embeddings is not true")
    shape = replace(shape, tied=tied)
    if any(one.kind not in FLOATS for one in tensors.values()):
        # A number may pack several weights, so only the bytes are used.
        return _with_bytes(shape, sums)
    total = sum(sums.counts.values())
    if abs(total - shape.weights) > MOST_OFF * shape.weights:
        raise ModelFileError(file, "weights", f"{total:,} in the tensors", f"{shape.weights:,} by config.json")
    return with_sums(shape, sums)


def _with_bytes(shape: ModelShape, sums: TensorSums) -> ModelShape:
    """Return *shape* with the bytes per weight of *sums*."""
    parts = shape.parts
    nbytes = sums.nbytes
    tables = (2 - shape.tied) * shape.vocabulary * shape.width
    plain = sum(nbytes[name] for name in ("attention", "feed", "others", "first", "last"))
    return replace(
        shape,
        weight_bytes=plain / (parts.whole - parts.routed),
        table_bytes=(nbytes["table"] + nbytes["head"]) / tables,
        expert_bytes=nbytes["routed"] / parts.routed if parts.routed else None,
    )


def _role(name: str) -> tuple[str | None, int | None, str]:
    """Return (part of the model that uses the tensor *name*, layer of the tensor, its name there).

    The part is None if it is unknown, and the layer is None outside layers.
    """
    layer = LAYER.search(name)
    # A file may contain any name, so only the first 6 digits of a layer's number are read.
    table, number, rest = (OUTSIDE, None, name) if layer is None else (IN_LAYER, int(layer[1][:6]), layer[2])
    return next((role for role, names in table if re.search(names, rest)), None), number, rest


def _complete(names: Mapping[int, set[str]], layers: int, file: object) -> None:
    """Raise ModelFileError if a layer lacks a tensor that other layers of its kind have.

    The two kinds are layers with experts and layers without.
    """
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
