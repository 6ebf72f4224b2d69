"""The interface of all tokenizers, and the text of tokens that arrive one at a time."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Final

BREAK: Final = "\ufdd0"
"""A Unicode noncharacter. No text keeps it, so it can split the names of marks."""


class Tokens(ABC):
    """A converter of text to token ids and back.

    *marks* maps names to the ids of special tokens, which no text is encoded to. *octets_of* has
    each token's bytes. Decoding a whole text drops up to *leading* spaces at its beginning.
    """

    leading = 0

    def __init__(self, marks: dict[str, int], octets_of: Sequence[bytes]) -> None:
        self.marks = marks
        self._octets_of = octets_of

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return the tokens of *text*. Names of marks in it are plain characters."""

    def prompt(self, text: str) -> list[int]:
        """Return the tokens of *text* as a whole prompt, with the marks that begin one, if any."""
        return self.encode(text)

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the whole text of *tokens*. Bytes that are not UTF-8 become replacement characters."""
        words = Detokenizer(self)
        return "".join([*map(words.push, tokens), words.end()])

    def octets(self, tokens: Iterable[int]) -> bytes:
        """Return the bytes of *tokens*, including leading spaces."""
        return b"".join(self._octets_of[token] for token in tokens)


class Detokenizer:
    """A converter of tokens, one at a time, to text. It never returns half a character.

    If *begins*, the tokens begin a text; otherwise they continue one.
    """

    def __init__(self, tokens: Tokens, begins: bool = True) -> None:
        self._tokens = tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._leading = tokens.leading if begins else 0

    def push(self, token: int) -> str:
        """Return the text that *token* completes, which may be empty."""
        text = self._decoder.decode(self._tokens.octets([token]))
        if text and self._leading:
            spaces = len(text) - len(text.lstrip(" "))
            text = text[min(spaces, self._leading) :]
            self._leading = 0
        return text

    def end(self) -> str:
        """Return the rest: a replacement character if the last character is incomplete, else ""."""
        return self._decoder.decode(b"", final=True)
