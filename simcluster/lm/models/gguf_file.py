"""A model in a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import nn

from simcluster.lm.files.error import ModelFileError
from simcluster.lm.files.gguf import MOST_TEXT, read_header
from simcluster.lm.headers.header import ModelHeader
from simcluster.lm.models.gguf_config import ROPE_FREQUENCIES, config_values
from simcluster.lm.models.model_file import HeaderFile
from simcluster.lm.models.tensor_parts import TensorPart, gguf_parts
from simcluster.lm.text.gguf_tokenizer import gguf_library
from simcluster.lm.text.tokenizer import LibraryTokens
from simcluster.lm.text.tokens import Tokens

_NAMES = (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
"""(name of a mark in a template, its name in a GGUF file)"""


class GgufFile(HeaderFile):
    """The model with *header* in a GGUF file, or in the files of a split model."""

    def __init__(self, header: ModelHeader, name: str | None = None) -> None:
        super().__init__(header, header.facts.file, name or header.facts.file.stem, Path())  # files have whole paths

    def _open(self, file: str) -> BinaryIO:
        return Path(file).open("rb", buffering=0)  # unlike in a folder, links are followed

    def _settings(self) -> Mapping[str, Any]:
        return config_values(self._header)

    def parts(self, name: str, config: Any) -> list[TensorPart]:
        return gguf_parts(name, config)

    def skeleton(self, place: int = 0, count: int = 1) -> nn.Module:
        found = super().skeleton(place, count)
        if (factors := self._tensors.get(ROPE_FREQUENCIES)) is not None:
            rotary: Any = found.model
            inverse = getattr(rotary.rotary_emb, "inv_freq", torch.empty(0))
            if factors.shape != inverse.shape:
                raise ModelFileError(
                    self.path, ROPE_FREQUENCIES, f"{factors.shape}", f"the shape {tuple(inverse.shape)}"
                )
            inverse /= self.read(ROPE_FREQUENCIES, 0, len(inverse))
        return found

    def value(self, key: str) -> Any:
        """Return the metadata value at *key*, or None if there is none."""
        return self._header.facts.values.get(key)

    def _tokenizer(self) -> Tokens | None:
        if self.value("tokenizer.ggml.model") is None:
            return None
        with self.path.open("rb") as file:
            facts = read_header(file).facts
        count = self.shape.vocabulary
        for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type"):
            if (found := len(facts[key])) != count:
                raise ModelFileError(self.path, key, f"{found:,}", f"{count:,}, as the embedding has rows")
        return LibraryTokens(gguf_library(facts, str(self.value("general.architecture"))), count)

    def _template(self) -> str | None:
        key = "tokenizer.chat_template"
        if key in self._header.facts.values and self.value(key) is None:
            raise ValueError(f"found more than {MOST_TEXT:,} characters")
        return None if self.value(key) is None else str(self.value(key))

    def _named(self) -> dict[str, str]:
        names = {} if self.tokenizer is None else {place: name for name, place in self.tokenizer.marks.items()}
        ids = {f"{short}_token": self.value(f"tokenizer.ggml.{long}_token_id") for short, long in _NAMES}
        return {name: names[place] for name, place in ids.items() if place in names}

    def _ends(self) -> Sequence[object]:
        return [self.value(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
