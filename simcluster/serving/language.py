"""The texts of an opened model, as a server needs them."""

from __future__ import annotations

from collections.abc import Sequence

from simcluster.errors import Problem, UsageError
from simcluster.inference.models.model_file import ModelFile
from simcluster.inference.models.tokenizer import Detokenizer


class FileLanguage:
    """The tokenizer and the chat template of *file*. Raises UsageError for one without a tokenizer."""

    def __init__(self, file: ModelFile) -> None:
        if file.tokenizer is None:
            raise UsageError(Problem("--model", f"{file.name} without a tokenizer", "one with it"))
        self._tokens, self._chat, self.ends = file.tokenizer, file.chat, file.ends

    @property
    def has_chat(self) -> bool:
        return self._chat is not None

    def encode(self, text: str) -> list[int]:
        return self._tokens.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokens.decode(tokens)

    def octets(self, tokens: Sequence[int]) -> bytes:
        return self._tokens.octets(tokens)

    def decoder(self) -> Detokenizer:
        return Detokenizer(self._tokens)

    def render(self, messages: list[dict[str, str]]) -> list[int]:
        assert self._chat is not None, "asked only if it has one"
        return self._chat.render(messages)
