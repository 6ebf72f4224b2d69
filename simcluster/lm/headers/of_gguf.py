"""The header of a model in a GGUF file, or in several files if the model is split."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from simcluster.lm.files.error import ModelFileError, refusing, shown
from simcluster.lm.files.gguf import read_header
from simcluster.lm.files.pieces import FileTensor, check_apart, check_inside
from simcluster.lm.headers.families import ARCHITECTURES
from simcluster.lm.headers.header import (
    MOST,
    MOST_CONTEXT,
    MOST_EXPERTS,
    MOST_LAYERS,
    ModelFacts,
    ModelHeader,
    printable,
)
from simcluster.lm.headers.sums import summed, with_sums
from simcluster.lm.plan.shape import ModelShape, WeightCounts
from simcluster.spelling import nearest

SPLIT: Final = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.\w+)")
"""A pattern for the names of the files of a split model."""


def parts_of(path: Path) -> list[Path]:
    """Return the files of the model in *path*. Raise ModelFileError if one of them is missing."""
    split = SPLIT.fullmatch(path.name)
    if split is None:
        return [path]
    count = int(split[3])
    names = [f"{split[1]}-{n:05}-of-{split[3]}{split[4]}" for n in range(1, min(count, 1000) + 1)]
    for name in names:
        if not os.path.isfile(path.with_name(name)):
            raise ModelFileError(path, "file", f"no {name} next to it", f"all {count} files of the model")
    return [path.with_name(name) for name in names]


def gguf_header(path: Path, name: str | None = None) -> ModelHeader:
    """Return the header of the model in *path*. Raise ModelFileError if the model is unusable."""
    values: dict[str, Any] = {}
    tensors: dict[str, FileTensor] = {}
    for part in parts_of(path):
        with refusing(part, "file", "a GGUF file"), part.open("rb") as file:
            header = read_header(file, lists=False)
            length = os.fstat(file.fileno()).st_size
        values = header.facts | values  # the first file has the model's metadata
        own: dict[str, FileTensor] = {}
        for key, one in header.tensors.items():
            with refusing(part, key[:60], "a whole tensor"):
                check_inside(length, one.offset, one.nbytes)
                own[key] = FileTensor(str(part), one.shape, one.offset, one.nbytes, one.type_name)
        with refusing(part, "file", "tensors that share no bytes"):
            check_apart(own.values())
        if twice := own.keys() & tensors.keys():
            raise ModelFileError(part, min(twice)[:60], "a second one, in another file", "one")
        tensors |= own
    kind = str(values.get("general.architecture"))
    if kind not in ARCHITECTURES:
        expected = f"a decoder with known weights: {nearest(kind, ARCHITECTURES)}"
        raise ModelFileError(path, "general.architecture", shown(kind), expected)
    facts = ModelFacts(path, values, f"{kind}.")
    shape = _shape(facts, tensors, printable(name or values.get("general.name") or path.stem))
    return ModelHeader(shape, facts, tensors, is_gguf=True)


def _shape(facts: ModelFacts, tensors: dict[str, FileTensor], name: str) -> ModelShape:
    layers = facts.count("block_count", most=MOST_LAYERS)
    # The last layers may only guess further tokens: an answer does not need them.
    layers -= facts.count("nextn_predict_layers", default=0, least=0, most=layers - 1)
    width = facts.count("embedding_length")
    heads = facts.count("attention.head_count")
    kv_heads = facts.count("attention.head_count_kv", default=heads)
    key_size = facts.count("attention.key_length_mla", "attention.key_length", default=max(1, width // heads))
    value_size = facts.count("attention.value_length_mla", "attention.value_length", default=key_size)
    feed = facts.count("feed_forward_length", "expert_feed_forward_length")
    table = tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2 or table.shape[1] != width or not 0 < table.shape[0] <= MOST:
        found = "no such table" if table is None else f"the shape {table.shape}"
        raise ModelFileError(facts.file, "token_embd.weight", found, f"the embedding, of {width:,} columns")
    latent = facts.count("attention.kv_lora_rank", default=0, least=0)
    if heads % kv_heads:
        raise facts.wrong(f"{facts.prefix}attention.head_count_kv", kv_heads, f"a divisor of {heads} heads")
    sums = summed(tensors, layers, facts.file)
    experts = facts.count("expert_count", default=1, most=MOST_EXPERTS) if sums.counts["routed"] else 1
    active = facts.count("expert_used_count", most=experts) if sums.counts["routed"] else 1
    shape = ModelShape(
        name, layers, width, heads, 1 if latent else kv_heads, (key_size + value_size) // 2, feed, table.shape[0],
        tied=not sums.counts["head"], weight_bytes=4.0, gated=not any("blk.0.ffn_up" in key for key in tensors)
        or any("blk.0.ffn_gate" in key for key in tensors), context=facts.count("context_length", most=MOST_CONTEXT),
        cached=latent + facts.count("rope.dimension_count", default=64) if latent else None,
    )  # fmt: skip
    return with_sums(replace(shape, counts=WeightCounts(0, 0, 0, experts=experts, active=active)), sums)
