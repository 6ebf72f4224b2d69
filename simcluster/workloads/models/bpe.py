"""Byte-pair encoding: tokens of several bytes, learnt from a text (Gage 1994; Sennrich, Haddow and Birch 2016).

The first 256 tokens are the bytes, so any text can be encoded. Training then repeatedly turns the most frequent pair of
neighbours into a token; ties go to the pair with the smaller numbers. Pairs do not cross word boundaries (Radford et
al. 2019, section 2.2); a space belongs to the word that follows it.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import torch
from torch import Tensor

BYTES = 256

_WORD = re.compile(rb" ?[A-Za-z_]+| ?[0-9]+| ?[^\sA-Za-z0-9_]+|\s+")

Pair = tuple[int, int]


@dataclass(frozen=True)
class BpeTokenizer:
    """A tokenizer. *merges* are the pairs of tokens that tokens 256, 257, ... stand for."""

    merges: tuple[Pair, ...]
    _ranks: dict[Pair, int] = field(init=False, repr=False, compare=False)
    _known: dict[bytes, list[int]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ranks", {pair: rank for rank, pair in enumerate(self.merges)})

    def encode(self, text: bytes) -> Tensor:
        """Return the tokens of *text*, as int32."""
        return torch.tensor([token for word in _WORD.findall(text) for token in self._word(word)], dtype=torch.int32)

    def decode(self, tokens: Iterable[int]) -> bytes:
        """Return the text that *tokens* stand for."""
        spelt = self.spelt()
        return b"".join(spelt[token] for token in tokens)

    def spelt(self) -> list[bytes]:
        """Return the bytes of every token."""
        spelt = [bytes([byte]) for byte in range(BYTES)]
        for first, second in self.merges:
            spelt.append(spelt[first] + spelt[second])
        return spelt

    def _word(self, word: bytes) -> list[int]:
        if word not in self._known:
            tokens = list(word)
            while len(tokens) > 1:
                # Merge in the order in which the pairs were learnt.
                pair = min(pairwise(tokens), key=lambda pair: self._ranks.get(pair, len(self.merges)))
                if pair not in self._ranks:
                    break
                tokens = _merged(tokens, pair, BYTES + self._ranks[pair])
            self._known[word] = tokens
        return self._known[word]


@lru_cache(maxsize=4)
def train(text: bytes, vocabulary: int) -> BpeTokenizer:
    """Learn a tokenizer of up to *vocabulary* tokens from *text*.

    Training stops early when no pair occurs twice.
    """
    counted = Counter(_WORD.findall(text))
    words = [list(word) for word in counted]
    occurrences = list(counted.values())
    counts: Counter[Pair] = Counter()
    where: dict[Pair, dict[int, None]] = {}
    for number, word in enumerate(words):
        _note(word, number, occurrences[number], counts, where)
    # The heap has the most frequent pair first. A pair with an outdated count is pushed again with
    # its new count.
    heap = [(-count, pair) for pair, count in counts.items()]
    heapq.heapify(heap)
    merges: list[Pair] = []
    while heap and len(merges) < vocabulary - BYTES:
        count, pair = heapq.heappop(heap)
        if counts[pair] != -count:
            if counts[pair] > 0:
                heapq.heappush(heap, (-counts[pair], pair))
            continue
        if counts[pair] < 2:
            break
        changed: dict[Pair, None] = {}
        for number in list(where[pair]):
            _note(words[number], number, -occurrences[number], counts, where)
            words[number] = _merged(words[number], pair, BYTES + len(merges))
            _note(words[number], number, occurrences[number], counts, where)
            changed.update(dict.fromkeys(pairwise(words[number])))
        for other in changed:
            heapq.heappush(heap, (-counts[other], other))
        merges.append(pair)
    return BpeTokenizer(tuple(merges))


def _note(
    word: Sequence[int], number: int, times: int, counts: Counter[Pair], where: dict[Pair, dict[int, None]]
) -> None:
    """Add *times*, which may be negative, to the counts of the pairs in word *number*, and update
    *where*, a mapping from each pair to the words that contain it.
    """
    for pair in pairwise(word):
        counts[pair] += times
        if times > 0:
            where.setdefault(pair, {})[number] = None
        else:
            where[pair].pop(number, None)


def _merged(tokens: Sequence[int], pair: Pair, token: int) -> list[int]:
    """Return *tokens* with each occurrence of *pair*, from the left, replaced by *token*."""
    merged: list[int] = []
    index = 0
    while index < len(tokens):
        if index + 1 < len(tokens) and (tokens[index], tokens[index + 1]) == pair:
            merged.append(token)
            index += 2
        else:
            merged.append(tokens[index])
            index += 1
    return merged
