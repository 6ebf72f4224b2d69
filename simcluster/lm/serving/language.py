"""The tokenizer and the chat template of an opened model, for a server."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

from simcluster.errors import UsageError
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.text.grammar import GrammarTokens
from simcluster.lm.text.tokens import Detokenizer


class FileLanguage:
    """The tokenizer and chat template of *file*. Raise UsageError if *file* has no tokenizer."""

    def __init__(self, file: ModelFile) -> None:
        if file.tokenizer is None:
            raise UsageError("--model", f"{file.name} without a tokenizer", "one with it")
        self._tokens = tokens = file.tokenizer
        self._vocabulary = file.shape.vocabulary
        self._chat = file.chat
        self.ends = file.ends
        self.encode = tokens.prompt
        self.decode = tokens.decode
        self.octets = tokens.octets
        self.decoder = partial(Detokenizer, tokens)
        self.has_chat = file.chat is not None

    def render(self, messages: list[dict[str, str]]) -> list[int]:
        assert self._chat is not None, "asked only if it has one"
        return self._chat.render(messages)

    def json_grammar(self, schema: Mapping[str, Any], *, or_text: bool = False) -> str:
        return self._grammars.json(schema, or_text=or_text)

    @cached_property
    def _grammars(self) -> GrammarTokens:
        return GrammarTokens(self._tokens, self.ends, self._vocabulary)
