"""The interface of every tokenizer of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Tokens(Protocol):
    """Texts to token ids and back. *marks*: the ids of tokens that no text encodes to, by name."""

    marks: dict[str, int]

    def encode(self, text: str) -> list[int]:
        """Return the tokens of *text*; the names of marks in it are plain characters."""
        ...

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of *tokens*; bytes that are no UTF-8 become the replacement character."""
        ...

    def octets(self, tokens: Iterable[int]) -> bytes:
        """Return the bytes of *tokens*."""
        ...
