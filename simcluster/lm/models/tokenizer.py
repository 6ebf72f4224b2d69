"""Byte-level byte-pair encoding with the vocabulary and merges of a model's file (Radford et al. 2019, section 2.2)."""

from __future__ import annotations

import codecs
import heapq
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

from simcluster.lm.models.tokens import Tokens

_SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
PRE_TOKENIZERS = ("smollm", "gpt-2")
_NEVER = {192, 193, *range(245, 256)}  # bytes that no UTF-8 has
CONTROL = 3
"""The type of a token that is a mark, as `<|im_end|>`, in a GGUF file."""


@lru_cache
def _range_of(category: str) -> str:
    """Return the characters whose Unicode category begins with *category*, as the inside of a class of `re`."""
    parts, start = [], None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code))[0] == category
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            parts.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    return "".join(parts)


@lru_cache
def _words() -> re.Pattern[str]:
    letters, numbers = _range_of("L"), _range_of("N")
    other = f" ?[^{_SPACE}{letters}{numbers}]+|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+"
    return re.compile(f"'(?:s|t|re|ve|m|ll|d)| ?[{letters}]+| ?[{numbers}]+|{other}")


@lru_cache
def _number() -> re.Pattern[str]:
    return re.compile(f"([{_range_of('N')}])")


@lru_cache
def _spelling() -> dict[int, str]:
    """Return the printable character that stands for each byte, as GPT-2 has them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


class Tokenizer(Tokens):
    """Texts to token ids and back. *tokens* and *merges* are spelt in GPT-2's characters for bytes.

    *pre* names how texts are cut into words; *marks* are ids of tokens that no text encodes to; *unknown* is the token
    of bytes without one. Raises ValueError for an unknown *pre*, for a byte of UTF-8 without a token if *unknown* is
    None, and for a merge whose result is not a token.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Sequence[str],
        pre: str,
        marks: Iterable[int] = (),
        unknown: int | None = None,
    ) -> None:
        if pre not in PRE_TOKENIZERS:
            raise ValueError(f"pre-tokenizer: found {pre!r}, expected one of {', '.join(PRE_TOKENIZERS)}")
        self._ids = {token: place for place, token in enumerate(tokens)}
        self._ranks: dict[tuple[str, str], int] = {}
        self._unknown = unknown
        self._digits_apart = pre == "smollm"
        for rank, merge in enumerate(merges):
            first, _, second = merge.partition(" ")
            if first + second not in self._ids:
                raise ValueError(f"merges[{rank}]: found {merge!r}, expected one whose result is a token")
            self._ranks.setdefault((first, second), rank)
        for byte, character in _spelling().items():
            if unknown is None and byte not in _NEVER and character not in self._ids:
                raise ValueError(f"tokens: found none for the byte {byte}, expected {character!r}")
        octets = {character: byte for byte, character in _spelling().items()}
        spelt = (
            bytes(octets[c] for c in token) if all(c in octets for c in token) else token.encode() for token in tokens
        )
        super().__init__({tokens[place]: place for place in marks}, list(spelt))

    def encode(self, text: str) -> list[int]:
        pieces = _number().split(text) if self._digits_apart else [text]
        words = (word for piece in pieces for word in _words().findall(piece))
        spelling = _spelling()
        return [
            token
            for word in words
            for part in self._merged([spelling[byte] for byte in word.encode("utf-8", "replace")])
            if (token := self._ids.get(part, self._unknown)) is not None
        ]

    def _merged(self, parts: list[str]) -> list[str]:
        """Merge the pair of the lowest rank until none is left: n log n in the length of the word."""
        after, before = [*range(1, len(parts)), -1], list(range(-1, len(parts) - 1))
        queue: list[tuple[int, int, str, str]] = []

        def offer(left: int) -> None:
            if left >= 0 and (right := after[left]) >= 0:
                rank = self._ranks.get((parts[left], parts[right]))
                if rank is not None:
                    heapq.heappush(queue, (rank, left, parts[left], parts[right]))

        for place in range(len(parts)):
            offer(place)
        while queue:
            _, left, first, second = heapq.heappop(queue)
            right = after[left]
            if right < 0 or parts[left] != first or parts[right] != second:
                continue  # a neighbour has merged since
            parts[left], parts[right], after[left] = first + second, "", after[right]
            if after[left] >= 0:
                before[after[left]] = left
            after[right] = -1
            offer(left)
            offer(before[left])
        return [part for part in parts if part]


class Detokenizer:
    """The text of tokens that arrive one at a time; never half a character."""

    def __init__(self, tokenizer: Tokens) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Return the text that *token* completes, possibly none."""
        return self._decoder.decode(self._tokenizer.octets([token]))

    def end(self) -> str:
        """Return what is left: a replacement character for a character that never became whole."""
        return self._decoder.decode(b"", final=True)
