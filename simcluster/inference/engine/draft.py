"""Guesses of a small model: speculative decoding as in Leviathan et al. 2023, section 2.

They are chosen with each request's own sampling, and with the random number of the token's place, which the large model
uses as well. So a model that agrees is right also where the text is sampled. The small model is a stage with all of its
layers, and its cache is filled from the tokens: after a preemption, a loss or a shared prefix there is nothing to move.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from simcluster.inference.engine.batch import Batch, Opened, Piece
from simcluster.inference.engine.queued import Queued, Wish
from simcluster.inference.engine.stage import Stage
from simcluster.transport import Transport


class Draft:
    """The guesser with the small model *stage*, for sequences of at most *context* tokens.

    Before it guesses for a sequence it reads its tokens, about *chunk* of all sequences per batch; those that it has
    not read to their end get no guesses yet.
    """

    def __init__(self, stage: Stage, context: int, chunk: int) -> None:
        self._stage, self._context, self._chunk = stage, context, chunk
        self._read: dict[
            int, tuple[int, tuple[int, ...]]
        ] = {}  # slot -> tokens in the cache, and the guesses after them
        self._opened: list[Opened] = []
        self._closed: list[int] = []

    @property
    def weight_bytes(self) -> float:
        return self._stage.weight_bytes

    @property
    def peak_cache_bytes(self) -> float:
        return self._stage.peak_cache_bytes

    async def guesses(
        self, node: Transport, wishes: Sequence[Wish], running: Collection[int]
    ) -> Sequence[tuple[int, ...]]:
        self._forget(running)
        found: list[list[int]] = [[] for _ in wishes]

        # Phase 1: the tokens that it has not read yet give the first guesses.
        asked, pieces, tokens = self._unread(wishes)
        while pieces:
            chosen = iter(await self._through(node, pieces, tokens))

            # Phase 2: each guess gives the next one, a pass for all sequences.
            again, tokens = [], []
            for which, piece in zip(asked, pieces, strict=True):
                if not piece.samples:
                    continue
                found[which].append(next(chosen))
                if len(found[which]) < self._most(wishes[which]):
                    again.append((which, Piece(piece.slot, piece.start + piece.count, 1, True)))
                    tokens.append(found[which][-1])
            asked, pieces = [which for which, _ in again], [piece for _, piece in again]
        for wish, own in zip(wishes, found, strict=True):
            if own:
                self._read[wish.sequence.slot] = len(wish.sequence.tokens), tuple(own[:-1])
        return [tuple(own) for own in found]

    def _most(self, wish: Wish) -> int:
        """Return the number of guesses for *wish* that have room in the context."""
        return min(wish.most, self._context - len(wish.sequence.tokens))

    def _forget(self, running: Collection[int]) -> None:
        """Forget the sequences that have ended or have lost their blocks."""
        for slot in [slot for slot in self._read if slot not in running]:
            del self._read[slot]
            self._closed.append(slot)

    def _unread(self, wishes: Sequence[Wish]) -> tuple[list[int], list[Piece], list[int]]:
        """Return the places of *wishes*, and a piece with its tokens for each of them, as far as a batch has room."""
        asked, pieces, tokens, room = [], list[Piece](), list[int](), self._chunk
        for which, wish in enumerate(wishes):
            sequence = wish.sequence
            if self._most(wish) < 1:
                continue
            start = self._begin(sequence)
            # One or two tokens follow right guesses: a sequence with no more is never late.
            size = min(len(sequence.tokens) - start, max(2, room))
            room -= size
            asked.append(which)
            pieces.append(Piece(sequence.slot, start, size, start + size == len(sequence.tokens)))
            tokens += sequence.tokens[start : start + size]
            self._read[sequence.slot] = start + size, ()
        return asked, pieces, tokens

    def _begin(self, sequence: Queued) -> int:
        """Return the number of tokens of *sequence* that are cached; wrong guesses are void."""
        if sequence.slot not in self._read:
            self._opened.append(sequence.opening(min(sequence.most, self._context)))
        count, guesses = self._read.get(sequence.slot, (0, ()))
        for token, guess in zip(sequence.tokens[count:-1], guesses, strict=False):
            if token != guess:
                break
            count += 1
        return count

    async def _through(self, node: Transport, pieces: Sequence[Piece], tokens: Sequence[int]) -> list[int]:
        """Return the tokens that the small model chooses after *pieces*."""
        batch = Batch(tuple(pieces), tuple(self._opened), tuple(self._closed))
        self._opened, self._closed = [], []
        stage, inputs = self._stage, torch.tensor(tokens, dtype=torch.int64)
        logits = await node.compute(stage.forward, batch, inputs, cost=stage.costs.layers_of(batch))
        chosen, *_ = await node.compute(stage.choose, batch, logits, cost=stage.costs.head_of(batch))
        found: list[int] = chosen.tolist()
        return found
