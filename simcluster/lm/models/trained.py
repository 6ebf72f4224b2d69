"""A GPT that a run has trained: its settings from the run's config.yaml, its weights from final.safetensors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from simcluster.documents.settings import validate
from simcluster.documents.yaml import MAX_BYTES, loads
from simcluster.errors import Problem, UsageError
from simcluster.lm.files.error import ModelFileError, refusing
from simcluster.lm.files.safetensors import ITEM_BYTES
from simcluster.lm.headers.read import tensors_of
from simcluster.lm.models.architecture import Architecture
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.runnable import wrong_tensor
from simcluster.lm.models.tokens import Tokens
from simcluster.paths.inside import read
from simcluster.workloads.models.bpe import BpeTokenizer
from simcluster.workloads.models.gpt import gpt, shape_of
from simcluster.workloads.models.text import tokenizer

CONFIG: Final = "config.yaml"
CHECKPOINTS, WEIGHTS = "checkpoints", "final.safetensors"
_SIZES = ("layers", "width", "heads", "kv_heads", "feed_forward", "vocabulary", "context", "tied")
_FUSED = {"query": "split", "key": "split", "value": "split", "gate": "up"}
"""Tensors that are some of the rows of another one in the file."""


class TrainedGpt(ModelFile):
    """The GPT in the run directory *folder*."""

    def __init__(self, folder: Path) -> None:
        inner = folder / CHECKPOINTS
        super().__init__(folder, folder.resolve().name, inner, tensors_of(inner, [WEIGHTS]))
        self._settings = self._read_settings()
        sizes = {name: self._settings[name] for name in _SIZES}
        shape = shape_of(self._settings["size"], self._settings["tokenizer"], **sizes)
        self.architecture = Architecture(
            shape.layers, shape.width, shape.heads, shape.kv_heads, shape.width // shape.heads, shape.feed_forward,
            shape.vocabulary, shape.context, gated=shape.gated, tied=shape.tied,
        )  # fmt: skip
        places = (self._place(name, layer) for name, layer in self.architecture.names())
        expected = {key: whole for key, whole, _ in places}
        if (error := wrong_tensor(self._tensors, expected, ITEM_BYTES, inner / WEIGHTS)) is not None:
            raise error

    def _place(self, name: str, layer: int | None) -> tuple[str, tuple[int, ...], int]:
        sizes = self.architecture
        rows, *rest = sizes.shapes(name)
        if layer is None:
            return f"{name}.weight", (rows, *rest), 0
        key = f"blocks.{layer}.{_FUSED.get(name, name)}.weight"
        if name in ("query", "key", "value"):
            kv = sizes.kv_heads * sizes.head_width
            all_rows, offset = sizes.width + 2 * kv, {"query": 0, "key": sizes.width, "value": sizes.width + kv}[name]
        elif name in ("up", "gate") and sizes.gated:
            all_rows, offset = 2 * rows, 0 if name == "gate" else rows
        else:
            all_rows, offset = rows, 0
        return key, (all_rows, *rest), offset

    def _read_settings(self) -> dict[str, Any]:
        """Return the settings of the run's workload, with defaults."""
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
            return TextTokens(BpeTokenizer(()), self.architecture.vocabulary)
        data = self._settings["data"]
        if data is not None and not os.path.isfile(data):
            raise ModelFileError(self.path / CONFIG, "workload.data", repr(data), "the text that taught the tokens")
        return TextTokens(tokenizer(data, self.architecture.vocabulary), self.architecture.vocabulary)

    def _template(self) -> str | None:
        return None

    def _ends(self) -> Sequence[object]:
        return []


class TextTokens(Tokens):
    """The bytes or tokens of a workload's text. It has no marks."""

    def __init__(self, tokens: BpeTokenizer, vocabulary: int) -> None:
        spelt = tokens.spelt()
        super().__init__({}, spelt + [b""] * (vocabulary - len(spelt)))  # a text may teach fewer
        self._tokens = tokens

    def encode(self, text: str) -> list[int]:
        found: list[int] = self._tokens.encode(text.encode("utf-8", "replace")).tolist()
        return found
