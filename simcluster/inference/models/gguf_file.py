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
from simcluster.inference.headers.header import ModelHeader
from simcluster.inference.models.dequantise import BY_NAME
from simcluster.inference.models.model_file import ModelFile
from simcluster.inference.models.runnable import architecture_of, tensor_key
from simcluster.inference.models.tokenizer import CONTROL, Tokenizer
from simcluster.inference.models.tokens import Tokens


class GgufFile(ModelFile):
    """The model with *header*, of a GGUF file or several that one was split into."""

    def __init__(self, header: ModelHeader, name: str | None = None) -> None:
        super().__init__(header.facts.file, name or header.facts.file.stem)
        self._header = header
        self.architecture = architecture_of(header)

    def value(self, key: str) -> Any:
        """Return the metadata at *key*, None if there is none."""
        return self._header.facts.values.get(key)

    def read(self, name: str, layer: int | None, first: int, last: int) -> Tensor:
        key, shape = tensor_key(self._header, name, layer), self.architecture.shapes(name)
        place = self._header.tensors[key]
        one, row = BY_NAME[place.kind], math.prod(shape[1:])
        with refusing(self.path, key, "a whole tensor"), Path(place.file).open("rb", buffering=0) as file:
            ends = (one.nbytes(rows * row) for rows in (shape[0], first, last))
            data = read_piece(file, place.begin, *ends)
            return torch.from_numpy(one.convert(data)).reshape(last - first, *shape[1:])

    def _tokenizer(self) -> Tokens | None:
        if (kind := self.value("tokenizer.ggml.model")) is None:
            return None
        if kind != "gpt2":
            raise ModelFileError(self.path, "tokenizer.ggml.model", repr(kind)[:60], "'gpt2': byte-level pair encoding")
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
