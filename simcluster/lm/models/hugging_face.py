"""A model of the Llama architecture in a Hugging Face folder: config.json, safetensors files, tokenizer.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from simcluster.lm.files.error import ModelFileError
from simcluster.lm.files.pieces import MOST_CONFIG
from simcluster.lm.headers.header import ModelHeader
from simcluster.lm.headers.read import mapping_in, names_in
from simcluster.lm.models.model_file import HeaderFile
from simcluster.lm.models.tokenizer import Tokenizer
from simcluster.lm.models.tokens import Tokens
from simcluster.paths.inside import read

MOST_TOKENIZER: Final = 64 * 2**20
"""Limit on the bytes of a tokenizer.json."""


class HuggingFaceFolder(HeaderFile):
    """The model with *header*, of a folder. No link in it is followed."""

    def __init__(self, header: ModelHeader) -> None:
        folder = header.facts.file.parent
        super().__init__(header, folder, folder.resolve().name, folder)

    def _tokenizer(self) -> Tokens | None:
        name = "tokenizer.json"
        if name not in names_in(self.path):
            return None
        found = mapping_in(self.path, name, MOST_TOKENIZER)
        model = found["model"]
        if model["type"] != "BPE" or found.get("normalizer") is not None or model.get("byte_fallback"):
            raise ModelFileError(self.path / name, "model", repr(model["type"])[:100], "byte-level BPE, not normalised")
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
        added = {token["content"]: token["id"] for token in found.get("added_tokens") or []}
        tokens = [""] * self.architecture.vocabulary
        for token, place in {**model["vocab"], **added}.items():
            if type(place) is not int or not 0 <= place < len(tokens):
                raise ModelFileError(self.path / name, "vocab", repr(place)[:100], f"0 to {len(tokens) - 1:,}")
            tokens[place] = token
        return Tokenizer(tokens, merges, _pre(found.get("pre_tokenizer")), added.values())

    def _template(self) -> str | None:
        names = names_in(self.path)
        if "chat_template.jinja" in names:
            return read(self.path, "chat_template.jinja", most_bytes=MOST_CONFIG).decode()
        if "tokenizer_config.json" not in names:
            return None
        template = mapping_in(self.path, "tokenizer_config.json").get("chat_template")
        return None if template is None else str(template)

    def _ends(self) -> Sequence[object]:
        found = self._header.facts.values.get("eos_token_id")
        return found if isinstance(found, list) else [found]


def _pre(found: Any) -> str:
    """Return the name of the pre-tokenizer that a tokenizer.json describes, or the description itself."""
    parts = found["pretokenizers"] if isinstance(found, dict) and found.get("type") == "Sequence" else [found]
    digits = parts[0] == {"type": "Digits", "individual_digits": True}
    rest = parts[1:] if digits else parts
    if len(rest) == 1 and isinstance(rest[0], dict):
        kind, prefix, regex = (rest[0].get(key) for key in ("type", "add_prefix_space", "use_regex"))
        if (kind, prefix) == ("ByteLevel", False) and regex in (True, None):
            return "smollm" if digits else "gpt-2"
    return repr(found)[:200]
