"""Read a model's shape from the header of its file: config.json, safetensors with a config.json next to it, or GGUF.

The files may come from anywhere: no tensor is read, and every size is bounded before anything is allocated.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from simcluster.errors import Problem, UsageError, nearest
from simcluster.inference.plan.shape import FORMATS, MOST, PRESETS, Shape, checked

MOST_CONFIG: Final = 2**20
MOST_JSON: Final = 8 * 2**20
MOST_HEAD: Final = 64 * 2**20
MOST_ENTRIES: Final = 2**20
MOST_TEXT: Final = 2**16
"""Limits: bytes of a config.json, of the headers of safetensors and GGUF; entries of the last, bytes of its texts."""

SCALARS: Final[Mapping[int, str]] = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""The type numbers of GGUF's scalars -> their letters in `struct`; 8 is text, 9 an array."""

_MALFORMED = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def shape_of(model: str) -> Shape:
    """Return the shape of a preset, or of the file at the path *model*. Raise UsageError."""
    if model in PRESETS:
        return PRESETS[model]
    path = Path(model)
    if not os.path.isfile(path):
        expected = f"a path to config.json, .safetensors or .gguf, or a preset: {nearest(model, PRESETS)}"
        raise UsageError(Problem("--model", f"{model!r}: no such file and no such name", expected))
    try:
        if path.suffix == ".gguf":
            return checked(_gguf(path), str(path))
        if path.suffix == ".safetensors":
            config = _json(path.parent / "config.json", MOST_CONFIG)
            return checked(_of_config(config, path.parent.resolve().name, _safetensors(path)), str(path))
        if path.suffix == ".json":
            return checked(_of_config(_json(path, MOST_CONFIG), path.resolve().parent.name, None), str(path))
    except (*_MALFORMED, struct.error) as error:
        found = f"no {error.args[0]}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise UsageError(Problem(f"--model {path}", found, "the header of a Llama-like model")) from None
    raise UsageError(Problem("--model", repr(path.name), "a name that ends in .json, .safetensors or .gguf"))


def _json(path: Path, most: int) -> Any:
    with path.open("rb") as file:
        text = file.read(most + 1)
    if len(text) > most:
        raise ValueError(f"{path.name} of more than {most:,} bytes")
    return json.loads(text)


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
        (size,) = struct.unpack("<Q", file.read(8))
        if size > MOST_JSON:
            raise ValueError(f"a header of {size:,} bytes; at most {MOST_JSON:,}")
        tensors = {key: entry for key, entry in json.loads(file.read(size)).items() if key != "__metadata__"}
    count = sum(_count(entry["shape"]) for entry in tensors.values())
    ends = [entry["data_offsets"] for entry in tensors.values()]
    return _mean(sum(end - begin for begin, end in ends), count)


def _gguf(path: Path) -> Shape:
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError("no GGUF file: it begins otherwise")
        version, tensors, entries = struct.unpack("<IQQ", file.read(20))
        if version not in (2, 3) or max(tensors, entries) > MOST_ENTRIES:
            raise ValueError(f"GGUF version {version} with {tensors:,} tensors and {entries:,} entries")
        facts: dict[str, Any] = {}
        for _ in range(entries):
            key = _text(file)
            facts[key] = _value(file, _number(file, "I"))
        dims = {}
        for _ in range(tensors):
            key, rank = _text(file), _number(file, "I")
            dims[key] = [_number(file, "Q") for _ in range(min(rank, 8))]
            file.seek(12, os.SEEK_CUR)  # its type and its offset
        weights = os.fstat(file.fileno()).st_size - file.tell()
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
        dims["token_embd.weight"][-1],
        "output.weight" not in dims,
        _mean(weights, sum(map(_count, dims.values()))),
    )


def _value(file: BinaryIO, kind: int, depth: int = 0) -> Any:
    """Return the next value of type *kind*; of an array, only read past it."""
    if kind in SCALARS:
        return _number(file, SCALARS[kind])
    if kind == 8:
        return _text(file)
    if kind != 9 or depth:
        raise ValueError(f"a value of type {kind}")
    inner, length = _number(file, "I"), _number(file, "Q")
    if length > 16 * MOST_ENTRIES:
        raise ValueError(f"an array of {length:,} entries")
    if inner in SCALARS:
        file.seek(length * struct.calcsize(f"<{SCALARS[inner]}"), os.SEEK_CUR)
        return None
    for _ in range(length):
        _value(file, inner, depth + 1)
    return None


def _number(file: BinaryIO, letter: str) -> Any:
    return struct.unpack(f"<{letter}", file.read(struct.calcsize(f"<{letter}")))[0]


def _text(file: BinaryIO) -> str:
    """Return the next text; of a long one, such as the template of a chat, only read past it."""
    size = _number(file, "Q")
    if size > MOST_HEAD or file.tell() > MOST_HEAD:
        raise ValueError(f"a header of more than {MOST_HEAD:,} bytes")
    if size > MOST_TEXT:
        file.seek(size, os.SEEK_CUR)
        return ""
    return file.read(size).decode("utf-8", "replace")


def _count(dims: Any) -> int:
    if not all(type(one) is int and 0 <= one <= MOST for one in dims):
        raise ValueError(f"a tensor of shape {dims}")
    return math.prod(dims)


def _mean(size: int, count: int) -> float:
    """Return bytes per weight. Raise ValueError if no format has that."""
    if not count or not 0.1 <= size / count <= max(FORMATS.values()) * 2:
        raise ValueError(f"{size:,} bytes of {count:,} weights")
    return size / count
