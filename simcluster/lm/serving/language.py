"""The texts of an opened model, as a server needs them."""

from __future__ import annotations

from functools import partial

from simcluster.errors import Problem, UsageError
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.tokenizer import Detokenizer


class FileLanguage:
    """The tokenizer and the chat template of *file*. Raises UsageError for one without a tokenizer."""

    def __init__(self, file: ModelFile) -> None:
        if file.tokenizer is None:
            raise UsageError(Problem("--model", f"{file.name} without a tokenizer", "one with it"))
        tokens, self._chat, self.ends = file.tokenizer, file.chat, file.ends
        self.encode, self.decode, self.octets = tokens.encode, tokens.decode, tokens.octets
        self.decoder = partial(Detokenizer, tokens)
        self.has_chat = file.chat is not None

    def render(self, messages: list[dict[str, str]]) -> list[int]:
        assert self._chat is not None, "asked only if it has one"
        return self._chat.render(messages)
