"""The interface of every tokenizer of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence


class Tokens(ABC):
    """Texts to token ids and back. *marks*: ids of tokens that no text encodes to. *octets_of*: each token's bytes."""

    def __init__(self, marks: dict[str, int], octets_of: Sequence[bytes]) -> None:
        self.marks, self._octets_of = marks, octets_of

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return the tokens of *text*; the names of marks in it are plain characters."""

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of *tokens*; bytes that are no UTF-8 become the replacement character."""
        return self.octets(tokens).decode("utf-8", "replace")

    def octets(self, tokens: Iterable[int]) -> bytes:
        """Return the bytes of *tokens*."""
        return b"".join(self._octets_of[token] for token in tokens)
