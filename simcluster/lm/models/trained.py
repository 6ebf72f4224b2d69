"""A GPT that a run has trained.

Its settings are in the run's config.yaml, its weights in final.safetensors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch
from torch import nn

from simcluster.documents.settings import validate
from simcluster.documents.yaml import MAX_BYTES, loads
from simcluster.errors import Problem, UsageError
from simcluster.lm.files.error import ModelFileError, refusing
from simcluster.lm.formats import FORMATS
from simcluster.lm.headers.read import tensors_of
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.skeleton import cut_config
from simcluster.lm.models.tensor_parts import TensorPart, row_parts
from simcluster.lm.models.trained_decoder import TrainedDecoder
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.text.tokens import Tokens
from simcluster.paths.inside import read
from simcluster.workloads.models.bpe import BpeTokenizer
from simcluster.workloads.models.gpt import gpt, shape_of
from simcluster.workloads.models.text import tokenizer
from simcluster.workloads.models.transformer import GptShape

CONFIG: Final = "config.yaml"
CHECKPOINTS, WEIGHTS = "checkpoints", "final.safetensors"
_SIZES = ("layers", "width", "heads", "kv_heads", "head_width", "feed_forward", "vocabulary", "context", "tied")
_NAMES: Final = {
    "model.embed_tokens": "embedding", "model.position": "position", "model.norm": "norm", "lm_head": "output",
    "input_layernorm": "norm_attention", "self_attn.qkv_proj": "split", "self_attn.o_proj": "merge",
    "post_attention_layernorm": "norm_feed", "mlp.up": "up", "mlp.down": "down",
}  # fmt: skip
"""Name of a module -> its name in the run's file; those after the first four are in a block."""


class TrainedGpt(ModelFile):
    """The GPT in the run directory *folder*."""

    def __init__(self, folder: Path) -> None:
        inner = folder / CHECKPOINTS
        super().__init__(folder, folder.resolve().name, inner, tensors_of(inner, [WEIGHTS]))
        self._settings = self._read_settings()
        sizes = {name: self._settings[name] for name in _SIZES}
        gpt_shape = shape_of(self._settings["size"], self._settings["tokenizer"], **sizes)
        self.shape, self.config = _described(gpt_shape, self.name)
        self._check_tensors("^output" if gpt_shape.tied else "^$")

    def skeleton(self, place: int = 0, count: int = 1) -> nn.Module:
        with torch.device("meta"):
            return TrainedDecoder(cut_config(self.config, place, count) if count > 1 else self.config).eval()

    def parts(self, name: str, config: Any) -> list[TensorPart]:
        stem = name.removesuffix(".weight")
        if (found := re.fullmatch(r"model\.layers\.(\d+)\.(.+)", stem)) is None:
            tied = stem == "lm_head" and config.tie_word_embeddings
            return [TensorPart(f"{_NAMES['model.embed_tokens' if tied else stem]}.weight")]
        key = f"blocks.{found[1]}.{_NAMES[found[2]]}.weight"
        counts = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
        if found[2] == "self_attn.qkv_proj":
            return row_parts(key, [count * config.head_dim for count in counts])
        if found[2] == "mlp.up":
            return row_parts(key, [config.intermediate_size] * (1 + config.is_gated))
        return [TensorPart(key)]

    def _read_settings(self) -> dict[str, Any]:
        """Return the settings of the run's workload, including defaults.

        Raise UsageError if they are malformed, or if the workload is not gpt.
        """
        path = self.path / CONFIG
        with refusing(path, "file", "the config of a run"):
            found = loads(read(self.path, CONFIG, most_bytes=MAX_BYTES).decode(), str(path)).data["workload"]
            given = dict(found)
            if (name := given.pop("name")) != "gpt":
                raise ModelFileError(path, "workload.name", repr(name)[:100], "'gpt'")
            settings, problems = validate(gpt, given)
        if problems:
            raise UsageError([Problem(f"workload.{one.name}", one.found, one.expected, str(path)) for one in problems])
        return settings

    def _tokenizer(self) -> Tokens | None:
        if self._settings["tokenizer"] == "bytes":
            return TextTokens(BpeTokenizer(()), self.shape.vocabulary)
        data = self._settings["data"]
        if data is not None and not os.path.isfile(data):
            raise ModelFileError(self.path / CONFIG, "workload.data", repr(data), "the text that taught the tokens")
        return TextTokens(tokenizer(data, self.shape.vocabulary), self.shape.vocabulary)

    def _template(self) -> str | None:
        return None

    def _ends(self) -> Sequence[object]:
        return []


def _described(shape: GptShape, name: str) -> tuple[ModelShape, SimpleNamespace]:
    """Return *shape* as a ModelShape, and as settings by their names in a config.json."""
    config = SimpleNamespace(
        num_hidden_layers=shape.layers, hidden_size=shape.width, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, head_dim=shape.head, intermediate_size=shape.feed_forward,
        vocab_size=shape.vocabulary, max_position_embeddings=shape.context, tie_word_embeddings=shape.tied,
        is_gated=shape.gated,
    )  # fmt: skip
    found = ModelShape(
        name, shape.layers, shape.width, shape.heads, shape.kv_heads, shape.head, shape.feed_forward,
        shape.vocabulary, shape.tied, FORMATS["f32"], gated=shape.gated, context=shape.context,
    )  # fmt: skip
    return found, config


class TextTokens(Tokens):
    """The tokenizer of a workload's text, by bytes or byte pairs. It has no marks."""

    def __init__(self, tokens: BpeTokenizer, vocabulary: int) -> None:
        spelt = tokens.spelt()
        super().__init__({}, spelt + [b""] * (vocabulary - len(spelt)))  # a short text has fewer tokens
        self._tokens = tokens

    def encode(self, text: str) -> list[int]:
        found: list[int] = self._tokens.encode(text.encode("utf-8", "replace")).tolist()
        return found
