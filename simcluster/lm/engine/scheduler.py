"""Continuous batching with chunked prefill over a paged cache: choose the tokens of each pass.

A new batch is made for every pass, as in Orca (Yu et al. 2022, section 3.1). The blocks are those
of PagedAttention (Kwon et al. 2023, section 4). Prompt chunks share a batch with decoding
sequences, as in Sarathi-Serve (Agrawal et al. 2024, section 4).

Requests are served in the order of arrival. The scheduler neither waits nor computes. It does not
know how long an answer will be; it uses a request's limit on the length of its answer only to
refuse requests that can never fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Final

from simcluster.lm.engine.batch import EngineBatch, IssuedBatch, SequenceChunk
from simcluster.lm.engine.guesses import looked_up
from simcluster.lm.engine.request_pool import RequestPool
from simcluster.lm.engine.request_sequence import RequestSequence, Row, logprobs_in, next_chunks
from simcluster.lm.engine.request_source import COUNTS, AnswerEnd, AnswerToken, EngineLoad, NodeLoad
from simcluster.lm.engine.token_history import FAILED
from simcluster.runs.answer_rows import Reason

NO_TOKEN: Final = "no token continues the answer by its grammar, or finding one takes too much work"  # noqa: S105


@dataclass
class Scheduler(RequestPool):
    """The scheduler of an engine. Batches end in the order they were issued.

    Call `add` and `cancel` for requests; `plan` and then `issue` whenever the first stage is idle;
    and `take` with the tokens of each batch that ends. *prefilled* counts the tokens that passed
    the model in chunks; a preempted request is counted again. *proposed* counts the guesses in
    batches that have ended, and *accepted* the guesses that the model chose as well.
    """

    prefilled: int = 0
    proposed: int = 0
    accepted: int = 0
    _in_flight: list[EngineBatch] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self._waiting or self._by_slot or self._in_flight)

    def set_aside(self) -> None:
        """Drop the batches in flight and all requests. Call this after the loss of a node.

        The tokens of those batches will never arrive. Requests that the stages know keep their
        cached tokens for `resume`, until others need the blocks. A stage may or may not have
        computed the lost batches, so a resumed request starts again from the first token of its
        lost pieces.
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
                self._close(sequence)  # stages may not know it, if its first batch was lost
            else:
                self._set_aside(self._by_slot.pop(sequence.slot))
        self._in_flight = []
        self._running = []
        self._waiting = []
        self._ruled = []
        self._by_id = {}

    def counts(self) -> dict[str, int]:
        """Return the counts since this scheduler began, by their names in EngineLoad."""
        return {name: getattr(self, name) for name in COUNTS}

    def load(self, nodes: tuple[NodeLoad, ...], before: Mapping[str, int]) -> EngineLoad:
        """Return the state of an engine on *nodes*; *before* has the counts at its start."""
        counts = {name: count - before[name] for name, count in self.counts().items()}
        return EngineLoad(len(self._running), len(self._waiting), self._room.share, nodes=nodes, **counts)

    def plan(self) -> list[tuple[RequestSequence, int]]:
        """Return (sequence, number of tokens) for the next batch; pass the result to `issue`.

        Decoding sequences come first, divided equally among the batches in flight; chunks of
        prompts follow. Return [] if `limits.batches` are in flight, or if every sequence waits for
        one of them. Call `issue` before any other method, because it relies on the state that
        `plan` leaves.
        """
        if len(self._in_flight) == self.limits.batches:
            return []
        before = self.preemptions
        chosen = [(sequence, 1) for sequence in self._decoding()]
        # A preemption shows that blocks are scarce: a new request would soon be preempted, too.
        if self._waiting and self.preemptions == before:
            self._admit()
        return chosen + next_chunks(self._running, self.limits.chunk_tokens)

    def issue(self, chosen: Sequence[tuple[RequestSequence, int]]) -> IssuedBatch:
        """Return the batch of *chosen*, from `plan`, with guesses for the decoding sequences."""
        pieces, tokens = [], list[int]()
        for sequence, size in chosen:
            start, end = sequence.issued, sequence.issued + size
            decodes = sequence.decodes
            guesses = self._guesses(sequence) if decodes and self.limits.guesses else ()
            self.prefilled += 0 if decodes else size
            pieces.append(
                SequenceChunk(sequence.slot, start, size + len(guesses), end == len(sequence.tokens), guesses)
            )
            tokens += [*sequence.tokens[start:end], *guesses]
            sequence.issued, sequence.flying = end, sequence.flying + 1
        batch = EngineBatch(tuple(pieces), tuple(self._opened), tuple(self._closed), tuple(self._ruled))
        self._opened, self._closed, self._ruled = [], [], []
        self._in_flight.append(batch)
        return IssuedBatch(batch, tuple(tokens))

    def take(
        self, tokens: Sequence[int], counts: Sequence[int] | None = None,
        ids: Sequence[Sequence[int]] = (), logprobs: Sequence[Sequence[float]] = (),
    ) -> list[AnswerToken | AnswerEnd]:  # fmt: skip
        """End the oldest batch in flight; return the tokens and the ends of its requests' answers.

        *tokens* are the tokens that the batch chose. The sampling pieces have *counts* tokens each,
        in order, or one each if *counts* is None. *ids* and *logprobs* have a row per token; they
        are empty if no request asks for log-probabilities. The result has nothing for requests that
        were cancelled while the batch was in flight; otherwise an end follows the last token of its
        request.
        """
        batch = self._in_flight.pop(0)
        rows: Iterable[Row | None] = zip(ids, logprobs, strict=True) if ids else repeat(None)
        chosen = zip(tokens, rows, strict=False)
        sizes = repeat(1) if counts is None else iter(counts)
        answers: list[AnswerToken | AnswerEnd] = []
        for piece in batch.pieces:
            found = list(islice(chosen, next(sizes))) if piece.samples else []
            sequence = self._by_slot.get(piece.slot)
            if sequence is None:
                continue  # its request was cancelled while the batch was in flight
            sequence.flying -= 1
            for token, row in found:
                if token == FAILED:
                    answers.append(self._close_with(sequence, "error", NO_TOKEN))
                    break
                answers.append(AnswerToken(sequence.request.id, token, row and logprobs_in(row, sequence.request)))
                if (end := self._end(sequence, token)) is not None:
                    answers.append(end)
                    break
            right = max(0, len(found) - 1)
            sequence.issued += right  # the stages have already cached the right guesses
            self.proposed += len(piece.guesses)
            self.accepted += right
        return answers

    def _end(self, sequence: RequestSequence, token: int) -> AnswerEnd | None:
        """Add *token* to *sequence*; return the end of its answer if *token* is the last one."""
        request = sequence.request
        sequence.tokens.append(token)
        reason: Reason
        if token in request.ends:
            reason = "stop"
        elif len(sequence.tokens) == sequence.most:
            reason = "length"
        else:
            return None
        return self._close_with(sequence, reason)

    def _close_with(self, sequence: RequestSequence, reason: Reason, message: str = "") -> AnswerEnd:
        name = sequence.request.id
        del self._by_id[name]
        self._running.remove(sequence)
        self.retire(sequence)
        return AnswerEnd(name, reason, message)

    def _decoding(self) -> list[RequestSequence]:
        """Return the decoding sequences of the next batch, each with a block for its next token."""
        # Each batch in flight gets an equal share, so that all stages of a pipeline have work.
        most = -(-len(self._running) // self.limits.batches)
        found: list[RequestSequence] = []
        for sequence in list(self._running):  # a copy, because `_grow` may preempt some of them
            if len(found) == most:
                break
            if sequence.slot >= 0 and sequence.decodes and self._grow(sequence):
                found.append(sequence)
        return found

    def _guesses(self, sequence: RequestSequence) -> tuple[int, ...]:
        """Return guesses of the next tokens of *sequence*, or () if too few blocks are free.

        The last token of an answer is never guessed: the check of the guess before it yields it
        anyway.
        """
        known = len(sequence.tokens)
        found = looked_up(sequence.tokens, min(self.limits.guesses, sequence.most - known - 1))
        return found if self.blocks.hold(sequence.number, known + len(found)) else ()
