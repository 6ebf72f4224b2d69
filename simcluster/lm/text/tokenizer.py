"""Tokenizers of the library `tokenizers`, in which no text can forge a special token, or mark.

The library finds marks such as `<|im_end|>` in any text. So BREAK, a character that no text keeps,
is put into the name of a mark that is meant as text. This splits the name into plain characters.
The library does everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from simcluster.errors import UsageError
from simcluster.lm.extra import need_extra
from simcluster.lm.text.tokens import BREAK, Tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BYTE = re.compile("<0x([0-9A-F]{2})>")


class LibraryTokens(Tokens):
    """The tokens of *library*, with ids below *vocabulary*. The constructor changes *library*.

    Every added token is a mark, except whitespace, and single characters that the file does not
    call special. Raise ValueError if *library* has an unsupported kind of vocabulary or decoder, or
    if a token has no row in the model.
    """

    def __init__(self, library: Tokenizer, vocabulary: int) -> None:
        kind = type(library.model).__name__
        if kind not in ("BPE", "Unigram"):
            raise ValueError(f"model: found {kind}, expected BPE or Unigram")
        for chance in {"dropout", "alpha"} & {*dir(library.model)}:
            setattr(library.model, chance, None)
        library.no_padding()
        library.no_truncation()
        tokens = library.get_added_tokens_decoder().items()
        added = {one.content: place for place, one in tokens}
        self._names = {place: name for name, place in library.get_vocab().items()}
        # A model may lack the rows of its last marks, such as those of images.
        if wrong := [place for place, name in self._names.items() if place >= vocabulary and name not in added]:
            raise ValueError(f"vocab: found the token {wrong[0]:,}, expected up to {vocabulary - 1:,}")
        least = {one.content: 1 if one.special else 2 for _, one in tokens}
        self._parted = {name: place for name, place in added.items() if len(name.strip(" \t\r\n▁")) >= least[name]}
        super().__init__({name: place for name, place in self._parted.items() if place < vocabulary}, ())
        library.add_special_tokens([BREAK])
        self._library = library
        unknown = library.encode(chr(0x10FFFD), add_special_tokens=False).ids
        self._guarded = {*self._parted.values()} - {*unknown}
        self._around = [one for one in library.encode("").ids if one in self._guarded]
        if max(self._around, default=0) >= vocabulary:
            raise ValueError(f"post_processor: found the tokens {self._around}, expected up to {vocabulary - 1:,}")
        decode = library.decoder.decode if library.decoder else " ".join
        self._is_byte_level = decode(["a", "Ġb"]) == "a b"
        self._has_bytes = decode(["a", "<0x41>"]) == "aA"
        if not self._is_byte_level and decode(["a", "▁b"]) != "a b":
            raise ValueError(f"decoder: found {library.decoder!r:.200}, expected one of bytes, or of ▁ for spaces")
        self.leading = 65 - len(decode(["▁" * 64 + "a"]))

    def encode(self, text: str) -> list[int]:
        return self._encoded(self._plain(text), [])

    def prompt(self, text: str) -> list[int]:
        return self._encoded(self._plain(text), self._around, is_whole=True)

    def encode_marked(self, text: str) -> list[int]:
        """Return the tokens of *text*.

        The name of a mark becomes the mark, unless a BREAK is in it.
        """
        names = sorted((name for name in self.marks if name in text), key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, names)) or '(?!)'})", text)
        parts[::2] = [self._plain(part.replace(BREAK, "")) for part in parts[::2]]
        return self._encoded("".join(parts), [self.marks[name] for name in parts[1::2]])

    def octets(self, tokens: Iterable[int]) -> bytes:
        return b"".join(self._octets(self._names.get(token, "")) for token in tokens)

    def _octets(self, name: str) -> bytes:
        if self._is_byte_level and _spelling().keys() >= {*name}:
            return bytes(_spelling()[character] for character in name)
        if self._has_bytes and (byte := _BYTE.fullmatch(name)):
            return bytes.fromhex(byte[1])
        return (name if self._is_byte_level else name.replace("▁", " ")).encode()

    def _plain(self, text: str) -> str:
        """Return *text* with a BREAK in each name of a mark, and nowhere else."""
        text = text.replace(BREAK, "\ufffd").encode("utf-8", "replace").decode()
        for name in self._parted:
            if name in text:
                text = text.replace(name, f"{name[0]}{BREAK}{name[1:]}")
        return text

    def _encoded(self, text: str, marks: Sequence[int], is_whole: bool = False) -> list[int]:
        """Return the tokens of *text*.

        Raise UsageError if the library cannot split it, or finds other marks in it than *marks*.
        """
        try:
            found = self._library.encode(text, add_special_tokens=is_whole).ids
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # a pattern of the file takes too many steps
                raise
            raise UsageError("tokenizer", f"a text that it cannot cut: {error}"[:300], "another text") from None
        if [one for one in found if one in self._guarded] != [one for one in marks if one in self._guarded]:
            raise UsageError("tokenizer", "a text that it takes for a mark", "one without names of marks")
        return [one for one in found if one in self._names]  # without breaks


def library_of(text: str) -> Tokenizer:
    """Return the tokenizer that *text*, a tokenizer.json, describes.

    Raise ValueError if it is malformed.
    """
    need_extra("tokenizers")
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # the library has no narrower class
        kinds = ", ".join(re.findall(r'"type"\s*:\s*"(\w+)"', text)[:20])
        raise ValueError(f"{error}, among {kinds}"[:500]) from None


@lru_cache
def _spelling() -> dict[str, int]:
    """Return character -> byte: how byte-level vocabularies spell bytes in printable characters."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
