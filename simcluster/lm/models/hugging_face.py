"""A model in a Hugging Face folder.

The folder has a config.json, safetensors files, and a tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from simcluster.lm.files.error import ModelFileError, refusing
from simcluster.lm.files.hub_links import folder_title, open_model_file
from simcluster.lm.files.pieces import MOST_CONFIG
from simcluster.lm.headers.header import ModelHeader
from simcluster.lm.headers.read import mapping_in, names_in
from simcluster.lm.models.model_file import HeaderFile
from simcluster.lm.models.tensor_parts import TensorPart, folder_parts
from simcluster.lm.text.tokenizer import LibraryTokens, library_of
from simcluster.lm.text.tokens import Tokens

MOST_TOKENIZER: Final = 64 * 2**20
"""Limit on the bytes of a tokenizer.json."""


class HuggingFaceFolder(HeaderFile):
    """The model with *header* in a folder. Only links of the hub's cache are followed."""

    def __init__(self, header: ModelHeader) -> None:
        folder = header.facts.file.parent
        super().__init__(header, folder, folder_title(folder), folder)

    def _settings(self) -> Mapping[str, Any]:
        return self._header.facts.values

    def parts(self, name: str, config: Any) -> list[TensorPart]:
        return folder_parts(name, config, self._tensors)

    def _tokenizer(self) -> Tokens | None:
        name, names = "tokenizer.json", names_in(self.path)
        if name not in names:
            if other := {"tokenizer.model", "vocab.json"} & {*names}:
                do = f"AutoTokenizer.from_pretrained({str(self.path)!r}).save_pretrained({str(self.path)!r})"
                raise ModelFileError(self.path, name, f"only {min(other)}", f"it: transformers writes it, with {do}")
            return None
        with refusing(self.path / name, "tokenizer"):
            text = self._text(name, MOST_TOKENIZER)
            return LibraryTokens(library_of(text), self.shape.vocabulary)

    def _template(self) -> str | None:
        if "chat_template.jinja" in names_in(self.path):
            return self._text("chat_template.jinja", MOST_CONFIG)
        template = self._written("tokenizer_config.json").get("chat_template")
        if isinstance(template, list):  # named templates
            template = {one["name"]: one["template"] for one in template}["default"]
        return None if template is None else str(template)

    def _named(self) -> dict[str, str]:
        found = self._written("tokenizer_config.json")
        names = {key: found.get(key) for key in ("bos_token", "eos_token", "unk_token", "pad_token")}
        texts = {key: name["content"] if isinstance(name, dict) else name for key, name in names.items()}
        return {key: name for key, name in texts.items() if isinstance(name, str)}

    def _ends(self) -> Sequence[object]:
        marks = {} if self.tokenizer is None else self.tokenizer.marks
        ends = [marks.get(self._named().get("eos_token", ""))]
        for values in (self._header.facts.values, self._written("generation_config.json")):
            found = values.get("eos_token_id")
            ends += found if isinstance(found, list) else [found]
        return ends

    def _written(self, name: str) -> dict[str, Any]:
        return mapping_in(self.path, name) if name in names_in(self.path) else {}

    def _text(self, name: str, most_bytes: int) -> str:
        """Return the text of the file *name*.

        Raise ValueError if it is larger than *most_bytes* or not UTF-8.
        """
        with open_model_file(self.path, name) as file:
            text = file.read(most_bytes + 1)
        if len(text) > most_bytes:
            raise ValueError(f"more than {most_bytes:,} bytes")
        return text.decode()
