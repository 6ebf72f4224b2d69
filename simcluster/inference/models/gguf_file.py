"""A model of the Llama architecture in a GGUF file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simcluster.inference.files.error import ModelFileError, refusing
from simcluster.inference.files.gguf import read_header
from simcluster.inference.files.pieces import read_piece
from simcluster.inference.models.architecture import Architecture
from simcluster.inference.models.dequantise import FORMATS
from simcluster.inference.models.model_file import ModelFile
from simcluster.inference.models.tokenizer import CONTROL, Tokenizer
from simcluster.inference.models.tokens import Tokens

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


class GgufFile(ModelFile):
    """The model in a GGUF file of the Llama architecture."""

    def __init__(self, path: Path, name: str | None = None) -> None:
        super().__init__(path, name or path.stem)
        with refusing(path, "file", "a GGUF file"), path.open("rb") as file:
            self._header = read_header(file, lists=False)  # nodes need no tokenizer
        self.architecture = self._architecture()

    def value(self, key: str) -> Any:
        """Return the metadata at *key*, None if there is none."""
        return self._header.facts.get(key)

    def read(self, name: str, layer: int | None, first: int, last: int) -> Tensor:
        key = f"{_WHOLE.get(name, name)}.weight" if layer is None else f"blk.{layer}.{_LAYER[name]}.weight"
        tensor, expected = self._header.tensors.get(key), self.architecture.shapes(name)
        if tensor is None:
            raise ModelFileError(self.path, key, "no such tensor", f"one of shape {expected}")
        if tensor.shape != expected:  # checked before it is dequantised, which allocates
            raise ModelFileError(self.path, key, f"the shape {tensor.shape}", f"{expected}")
        if tensor.kind not in FORMATS:
            known = ", ".join(one.name for one in FORMATS.values())
            raise ModelFileError(self.path, key, f"weights of GGUF's type {tensor.kind}", f"one of {known}")
        one, row = FORMATS[tensor.kind], math.prod(expected[1:])
        with refusing(self.path, key, "a whole tensor"), self.path.open("rb", buffering=0) as file:
            ends = (one.nbytes(rows * row) for rows in (expected[0], first, last))
            data = read_piece(file, tensor.offset, *ends)
            return torch.from_numpy(one.convert(data)).reshape(last - first, *expected[1:])

    def _tokenizer(self) -> Tokens | None:
        if (kind := self.value("tokenizer.ggml.model")) is None:
            return None
        if kind != "gpt2":
            raise ModelFileError(self.path, "tokenizer.ggml.model", repr(kind), "'gpt2': byte-level pair encoding")
        with self.path.open("rb") as file:
            facts = read_header(file).facts
        prefix, count = "tokenizer.ggml.", self.architecture.vocabulary
        tokens, kinds, pre = (facts[prefix + name] for name in ("tokens", "token_type", "pre"))
        for name, found in (("tokens", tokens), ("token_type", kinds)):
            if len(found) != count:
                expected = f"{count:,}, as the embedding has rows"
                raise ModelFileError(self.path, prefix + name, f"{len(found):,}", expected)
        marks = [place for place, kind in enumerate(kinds) if kind == CONTROL]
        merges, unknown = (facts.get(prefix + name) for name in ("merges", "unknown_token_id"))
        return Tokenizer(tokens, merges or (), pre, marks, unknown)

    def _template(self) -> str | None:
        template = self.value("tokenizer.chat_template")
        return None if template is None else str(template)

    def _ends(self) -> Sequence[object]:
        return [self.value(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]

    def _architecture(self) -> Architecture:
        if (kind := self.value("general.architecture")) != "llama":
            raise ModelFileError(self.path, "general.architecture", repr(kind), "'llama'")
        if "rope_freqs.weight" in self._header.tensors or self.value("llama.rope.scaling.type") not in (None, "none"):
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
        table = self._header.tensors.get("token_embd.weight")
        if table is None or len(table.shape) != 2:
            raise ModelFileError(self.path, "token_embd.weight", "no such table", "the embedding")
        return Architecture(
            layers, width, heads, kv_heads, head_width, feed, table.shape[0], context, gated=True,
            tied="output.weight" not in self._header.tensors, rope_base=self._positive("rope.freq_base", 10_000.0),
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
