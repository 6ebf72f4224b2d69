"""Continuous batching with chunked prefill over a paged cache: which tokens go through the model next.

Batches are made for every pass, as in Orca (Yu et al. 2022, section 3.1); the blocks are those of PagedAttention (Kwon
et al. 2023, section 4), the chunks among decoding sequences those of Sarathi-Serve (Agrawal et al. 2024, section 4).

First come, first served. The scheduler neither waits nor computes. It never looks at the length of an answer, which is
unknown until its end, nor at a request's limit on it, except to refuse what can never fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat

from simcluster.lm.engine.batch import EngineBatch, IssuedBatch, SequenceChunk
from simcluster.lm.engine.guesses import looked_up
from simcluster.lm.engine.queued import AnswerToken, RequestSequence, Row, logprobs_in, next_chunks
from simcluster.lm.engine.request_pool import RequestPool
from simcluster.lm.request import Reason


@dataclass
class Scheduler(RequestPool):
    """Call `add` and `cancel` for requests, `plan` and then `issue` whenever the first stage is idle, `take` for the
    tokens that a batch gave. Batches end in the order in which they were made.

    *prefilled* counts the tokens that went through the model in chunks, some of them again. Of the guesses *proposed*
    in batches that have ended, those *accepted* were the model's choice.
    """

    prefilled: int = 0
    proposed: int = 0
    accepted: int = 0
    _in_flight: list[EngineBatch] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self._waiting or self._by_slot or self._in_flight)

    def set_aside(self) -> None:
        """Take back the batches in flight, as their tokens will never come, and forget all requests. What is cached of
        them is kept for `resume`, until others need the blocks.

        A stage may have computed those batches: the next pieces begin where theirs did.
        """
        begun = {one.slot for one in self._opened}
        for batch in reversed(self._in_flight):
            begun |= {one.slot for one in batch.opened}
            self._closed += batch.closed
            for piece in batch.pieces:
                if piece.slot in self._by_slot:
                    self._by_slot[piece.slot].issued = piece.start
        for sequence in list(self._by_slot.values()):
            if sequence.slot in begun:
                self._close(sequence)  # which stages know it is unknown
            else:
                self._set_aside(self._by_slot.pop(sequence.slot))
        self._in_flight, self._running, self._waiting, self._by_id = [], [], [], {}

    def plan(self) -> list[tuple[RequestSequence, int]]:
        """Return the sequences of the next batch, each with the number of its tokens; none if *batches* are in flight,
        or no sequence can go on before one of them ends. `issue` them at once.

        Decoding sequences come first, in equal groups for the batches in flight; then prompts, by chunks.
        """
        if len(self._in_flight) == self.limits.batches:
            return []
        before = self.preemptions
        chosen = [(sequence, 1) for sequence in self._decoding()]
        if self.preemptions == before:
            self._admit()
        return chosen + next_chunks(self._running, self.limits.chunk_tokens)

    def issue(self, chosen: Sequence[tuple[RequestSequence, int]]) -> IssuedBatch:
        """Return the batch of *chosen*, with guesses for the sequences that decode."""
        pieces, tokens = [], list[int]()
        for sequence, size in chosen:
            start, end = sequence.issued, sequence.issued + size
            guesses = self._guesses(sequence) if sequence.decodes else ()
            self.prefilled += 0 if sequence.decodes else size
            pieces.append(
                SequenceChunk(sequence.slot, start, size + len(guesses), end == len(sequence.tokens), guesses)
            )
            tokens += [*sequence.tokens[start:end], *guesses]
            sequence.issued, sequence.flying = end, sequence.flying + 1
        batch = EngineBatch(tuple(pieces), tuple(self._opened), tuple(self._closed))
        self._opened, self._closed = [], []
        self._in_flight.append(batch)
        return IssuedBatch(batch, tuple(tokens))

    def take(
        self, tokens: Sequence[int], counts: Sequence[int] | None = None,
        ids: Sequence[Sequence[int]] = (), logprobs: Sequence[Sequence[float]] = (),
    ) -> list[AnswerToken]:  # fmt: skip
        """End the oldest batch in flight, which chose *tokens*; return them by request, without those cancelled.

        Each piece that samples has the next of *counts* tokens, or one. Each token has a row of *ids* and *logprobs*,
        unless no request of the batch asks for them.
        """
        batch = self._in_flight.pop(0)
        rows: Iterable[Row | None] = zip(ids, logprobs, strict=True) if ids else repeat(None)
        chosen, sizes = zip(tokens, rows, strict=False), repeat(1) if counts is None else iter(counts)
        answers: list[AnswerToken] = []
        for piece in batch.pieces:
            found = list(islice(chosen, next(sizes))) if piece.samples else []
            sequence = self._by_slot.get(piece.slot)
            if sequence is None:
                continue  # cancelled in the meantime
            sequence.flying -= 1
            for token, row in found:
                answers.append(self._answer(sequence, token, row))
                if answers[-1].reason is not None:
                    break
            right = max(0, len(found) - 1)
            sequence.issued += right  # the guesses that were right are cached
            self.proposed += len(piece.guesses)
            self.accepted += right
        return answers

    def _answer(self, sequence: RequestSequence, token: int, row: Row | None) -> AnswerToken:
        request = sequence.request
        sequence.tokens.append(token)
        reason: Reason | None = None
        if token in request.ends:
            reason = "stop"
        elif len(sequence.tokens) == sequence.most:
            reason = "length"
        if reason is not None:
            del self._by_id[request.id]
            self._running.remove(sequence)
            self.retire(sequence)
        return AnswerToken(request.id, token, reason, logprobs_in(row, request))

    def _decoding(self) -> list[RequestSequence]:
        """Return the decoding sequences of the next batch, each with a block for its token."""
        most = -(-len(self._running) // self.limits.batches)
        found: list[RequestSequence] = []
        for sequence in list(self._running):
            if len(found) == most:
                break
            if sequence.slot >= 0 and sequence.decodes and self._grow(sequence):
                found.append(sequence)
        return found

    def _guesses(self, sequence: RequestSequence) -> tuple[int, ...]:
        """Return guesses of the tokens after those of *sequence*, if free blocks have room for them.

        The last token of an answer is not guessed: the pass before it gives it anyway.
        """
        known = len(sequence.tokens)
        found = looked_up(sequence.tokens, min(self.limits.guesses, sequence.most - known - 1))
        return found if self.blocks.hold(sequence.number, known + len(found)) else ()
