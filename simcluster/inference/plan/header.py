"""Read a model's shape from the header of its file: config.json, safetensors with a config.json next to it, or GGUF.

The files may come from anywhere: no tensor is read, and every size is bounded before anything is allocated.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from simcluster.errors import Problem, UsageError, nearest
from simcluster.inference.files.error import MALFORMED, reason
from simcluster.inference.files.gguf import read_header
from simcluster.inference.files.pieces import MOST_CONFIG, read_json
from simcluster.inference.files.safetensors import read_entries
from simcluster.inference.plan.shape import FORMATS, MOST, PRESETS, Shape, checked


def shape_of(model: str) -> Shape:
    """Return the shape of a preset, or of the file at the path *model*. Raise UsageError."""
    if model in PRESETS:
        return PRESETS[model]
    path = Path(model)
    if path.is_dir():
        expected = "the file config.json, .safetensors or .gguf of a model; runs have none"
        raise UsageError(Problem("--model", f"{model!r}, a directory", expected))
    if not os.path.isfile(path):
        expected = f"a path to config.json, .safetensors or .gguf, or a preset: {nearest(model, PRESETS)}"
        raise UsageError(Problem("--model", f"{model!r}: no such file and no such name", expected))
    try:
        if path.suffix == ".gguf":
            return checked(_gguf(path), str(path))
        if path.suffix == ".safetensors":
            config = _config(path.parent / "config.json")
            return checked(_of_config(config, path.parent.resolve().name, _safetensors(path)), str(path))
        if path.suffix == ".json":
            return checked(_of_config(_config(path), path.resolve().parent.name, None), str(path))
    except MALFORMED as error:
        raise UsageError(Problem(f"--model {path}", reason(error), "the header of a Llama-like model")) from None
    raise UsageError(Problem("--model", repr(path.name), "a name that ends in .json, .safetensors or .gguf"))


def _config(path: Path) -> Any:
    with path.open("rb") as file:
        return read_json(file, MOST_CONFIG)


def _of_config(config: Any, name: str, weight_bytes: float | None) -> Shape:
    """Return the shape that a Hugging Face *config* describes; its dtype decides if *weight_bytes* is None."""
    if not isinstance(config, dict):
        raise ValueError("config.json is no mapping")
    heads, width = config["num_attention_heads"], config["hidden_size"]
    kind = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    known = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}
    if weight_bytes is None and kind not in known:
        raise ValueError(f"dtype {kind!r}")
    return Shape(
        name,
        config["num_hidden_layers"],
        width,
        heads,
        config.get("num_key_value_heads") or heads,
        config.get("head_dim") or width // heads,
        config["intermediate_size"],
        config["vocab_size"],
        bool(config.get("tie_word_embeddings", False)),
        known[kind] if weight_bytes is None else weight_bytes,
    )


def _safetensors(path: Path) -> float:
    """Return the mean bytes per weight of a safetensors file."""
    with path.open("rb") as file:
        entries = read_entries(file).values()
    return _mean(sum(one.end - one.begin for one in entries), sum(_count(one.shape) for one in entries))


def _gguf(path: Path) -> Shape:
    with path.open("rb") as file:
        header = read_header(file, lists=False)
        weights = os.fstat(file.fileno()).st_size - header.begin
    facts, tensors = header.facts, header.tensors
    kind = str(facts["general.architecture"])
    if not kind.isprintable():
        raise ValueError(f"architecture {kind!r}")
    heads, width = facts[f"{kind}.attention.head_count"], facts[f"{kind}.embedding_length"]
    return Shape(
        str(facts.get("general.name") or path.stem),
        facts[f"{kind}.block_count"],
        width,
        heads,
        facts.get(f"{kind}.attention.head_count_kv", heads),
        facts.get(f"{kind}.attention.key_length") or width // heads,
        facts[f"{kind}.feed_forward_length"],
        tensors["token_embd.weight"].shape[0],
        "output.weight" not in tensors,
        _mean(weights, sum(_count(one.shape) for one in tensors.values())),
    )


def _count(dims: Any) -> int:
    if not all(type(one) is int and 0 <= one <= MOST for one in dims):
        raise ValueError(f"a tensor of shape {dims}")
    return math.prod(dims)


def _mean(size: int, count: int) -> float:
    """Return bytes per weight. Raise ValueError if no format has that."""
    if not count or not 0.1 <= size / count <= max(FORMATS.values()) * 2:
        raise ValueError(f"{size:,} bytes of {count:,} weights")
    return size / count
