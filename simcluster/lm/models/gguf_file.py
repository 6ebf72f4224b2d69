"""A model of the Llama architecture in a GGUF file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from simcluster.lm.files.error import ModelFileError
from simcluster.lm.files.gguf import read_header
from simcluster.lm.headers.header import ModelHeader
from simcluster.lm.models.model_file import HeaderFile
from simcluster.lm.models.tokenizer import CONTROL, Tokenizer
from simcluster.lm.models.tokens import Tokens


class GgufFile(HeaderFile):
    """The model with *header*, of a GGUF file or several that one was split into."""

    def __init__(self, header: ModelHeader, name: str | None = None) -> None:
        super().__init__(header, header.facts.file, name or header.facts.file.stem, Path())  # the header has paths

    def _open(self, file: str) -> BinaryIO:
        return Path(file).open("rb", buffering=0)  # it may be a link

    def value(self, key: str) -> Any:
        """Return the metadata at *key*, None if there is none."""
        return self._header.facts.values.get(key)

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
