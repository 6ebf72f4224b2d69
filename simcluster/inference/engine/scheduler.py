"""Continuous batching with chunked prefill over a paged cache: which tokens go through the model next.

Batches are made for every pass, as in Orca (Yu et al. 2022, section 3.1); the blocks are those of PagedAttention (Kwon
et al. 2023, section 4), the chunks among decoding sequences those of Sarathi-Serve (Agrawal et al. 2024, section 4).

First come, first served. The scheduler neither waits nor computes. It never looks at the length of an answer, which is
unknown until its end, nor at a request's limit on it, except to refuse what can never fit.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count, islice, repeat

from simcluster.inference.engine.batch import Batch, Issued, Opened, Piece
from simcluster.inference.engine.limits import Limits
from simcluster.inference.engine.queued import Answer, Plan, Queued, Row, Wish, logprobs_in, next_chunks, number
from simcluster.inference.engine.room import Room
from simcluster.inference.request import NO_LOGPROBS, Reason, Request


@dataclass
class Scheduler:
    """Call `add` and `cancel` for requests, `plan` and then `issue` whenever the first stage is idle, `take` for the
    tokens that a batch gave. Batches end in the order in which they were made.

    *keeps_prefixes*: the blocks of a request that has ended are kept until others need them, for prompts that begin as
    its prompt does. *prefilled* counts the tokens that went through the model in chunks, some of them again. Of the
    guesses *proposed* in batches that have ended, those *accepted* were the model's choice.
    """

    limits: Limits
    keeps_prefixes: bool = False
    preemptions: int = 0
    prefilled: int = 0
    proposed: int = 0
    accepted: int = 0
    _waiting: list[Queued] = field(default_factory=list)
    _running: list[Queued] = field(default_factory=list)
    _in_flight: list[Batch] = field(default_factory=list)
    _opened: list[Opened] = field(default_factory=list)
    _closed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._room = Room(self.limits, self._forgotten)
        self.blocks = self._room.blocks
        self._numbers, self._slots = count(), count()
        self._by_slot: dict[int, Queued] = {}
        self._by_id: dict[str, Queued] = {}
        self._aside: dict[int, Queued] = {}

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def cache_share(self) -> float:
        """The share of the blocks that requests hold; those of kept prefixes are as good as free."""
        return self._room.share

    @property
    def slots(self) -> Collection[int]:
        """The slots of running sequences."""
        return self._by_slot.keys()

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def is_empty(self) -> bool:
        return not (self._waiting or self._by_slot or self._in_flight)

    def add(self, request: Request) -> str:
        """Put *request* into the queue and return "", or return why it can never be answered.

        Raises ValueError if one with its id has not ended yet.
        """
        if why := self.limits.refusal(request):
            return why
        if request.id in self._by_id:
            raise ValueError(f"request {request.id!r}: one with this id has not ended yet")
        sequence = self._by_id[request.id] = Queued(request, next(self._numbers), list(request.prompt))
        self._waiting.append(sequence)  # the latest of all
        return ""

    def cancel(self, request: str) -> bool:
        """End *request* and free its blocks now; return False if it is unknown or has ended."""
        sequence = self._by_id.pop(request, None)
        if sequence is None:
            return False
        (self._running if sequence.slot >= 0 else self._waiting).remove(sequence)
        self._close(sequence)
        return True

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

    def _set_aside(self, sequence: Queued) -> None:
        self._aside[sequence.slot] = sequence
        self._room.set_aside(sequence.slot, sequence.number)
        sequence.flying = 0

    @property
    def aside(self) -> list[str]:
        """The requests that `resume` can continue."""
        return [one.request.id for one in self._aside.values()]

    def resume(self, request: Request) -> list[int] | None:
        """Continue *request*, the rest of one set aside; return the tokens after its prompt. None: it is unknown.

        If it asks for log-probabilities, which are not kept, those tokens are computed again instead.
        """
        sequence = next((one for one in self._aside.values() if one.request.id == request.id), None)
        if sequence is None or not sequence.goes_on_as(request):
            return None
        slot = sequence.slot
        del self._aside[slot]
        self._room.resume(slot)
        self._by_slot[slot] = self._by_id[request.id] = sequence
        insort(self._running, sequence, key=number)
        if request.logprobs != NO_LOGPROBS:
            del sequence.tokens[len(request.prompt) :]
            sequence.issued = min(sequence.issued, len(sequence.tokens) - 1)
        return sequence.tokens[len(request.prompt) :]

    def part_with(self) -> list[Queued]:
        """Return the requests that have their first token: another engine continues them. `retire` frees each."""
        found = [one for one in self._running if one.decodes and not one.flying]
        for sequence in found:
            del self._by_id[sequence.request.id]
            self._running.remove(sequence)
        return found

    def adopt(self, request: Request, tokens: Sequence[int]) -> Opened | None:
        """Set *request* aside: another engine has cached all its *tokens* except the last. Return what the stage
        takes in, None without room.
        """
        sequence = Queued(request, next(self._numbers), [*tokens], issued=len(tokens) - 1)
        if not self._hold(sequence):
            return None
        sequence.slot = next(self._slots)
        self._set_aside(sequence)
        return sequence.opening(sequence.most, logprobs=request.logprobs)

    def plan(self) -> Plan | None:
        """Return the next batch without guesses; None if *batches* are in flight, or no sequence can go on before one
        of them ends. `issue` it before the next one; in between, requests may come and be cancelled, and batches end.

        Decoding sequences come first, in equal groups for the batches in flight; then prompts, by chunks.
        """
        if len(self._in_flight) == self.limits.batches:
            return None
        before = self.preemptions
        chosen = [(sequence, 1) for sequence in self._decoding()]
        if self.preemptions == before:
            self._admit()
        chosen += next_chunks(self._running, self.limits.chunk_tokens)
        return Plan(chosen, self._wishes(chosen)) if chosen else None

    def issue(self, plan: Plan, guesses: Sequence[tuple[int, ...]] = ()) -> Issued | None:
        """Return the batch of *plan*, with *guesses* for each of its wishes, or without any.

        None if all of its sequences are cancelled by now.
        """
        pieces, tokens = [], list[int]()
        found = {wish.sequence.slot: own[: wish.most] for wish, own in zip(plan.wishes, guesses, strict=False)}
        for sequence, size in plan.chosen:
            if self._by_slot.get(sequence.slot) is not sequence:
                continue
            start, end = sequence.issued, sequence.issued + size
            own = found.get(sequence.slot, ())
            self.prefilled += 0 if sequence.decodes else size
            self.blocks.trim(sequence.number, len(sequence.tokens) + len(own))
            pieces.append(Piece(sequence.slot, start, size + len(own), end == len(sequence.tokens), own))
            tokens += [*sequence.tokens[start:end], *own]
            sequence.issued, sequence.flying = end, sequence.flying + 1
        if not pieces:
            return None
        batch = Batch(tuple(pieces), tuple(self._opened), tuple(self._closed))
        self._opened, self._closed = [], []
        self._in_flight.append(batch)
        return Issued(batch, tuple(tokens))

    def take(
        self, tokens: Sequence[int], counts: Sequence[int] | None = None,
        ids: Sequence[Sequence[int]] = (), logprobs: Sequence[Sequence[float]] = (),
    ) -> list[Answer]:  # fmt: skip
        """End the oldest batch in flight, which chose *tokens*; return them by request, without those cancelled.

        Each piece that samples has the next of *counts* tokens, or one. Each token has a row of *ids* and *logprobs*,
        unless no request of the batch asks for them.
        """
        batch = self._in_flight.pop(0)
        rows: Iterable[Row | None] = zip(ids, logprobs, strict=True) if ids else repeat(None)
        chosen, sizes = zip(tokens, rows, strict=False), repeat(1) if counts is None else iter(counts)
        answers: list[Answer] = []
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

    def _answer(self, sequence: Queued, token: int, row: Row | None) -> Answer:
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
        return Answer(request.id, token, reason, logprobs_in(row, request))

    def retire(self, sequence: Queued) -> None:
        """Keep the prompt of *sequence*, which has ended here, or free its blocks."""
        prompt = sequence.request.prompt
        if self.keeps_prefixes and self._room.keep(sequence.slot, sequence.number, prompt):
            del self._by_slot[sequence.slot]
        else:
            self._close(sequence)

    def _decoding(self) -> list[Queued]:
        """Return the decoding sequences of the next batch, each with a block for its token."""
        most = -(-len(self._running) // self.limits.batches)
        found: list[Queued] = []
        for sequence in list(self._running):
            if len(found) == most:
                break
            if sequence.slot >= 0 and sequence.decodes and self._grow(sequence):
                found.append(sequence)
        return found

    def _wishes(self, chosen: Sequence[tuple[Queued, int]]) -> list[Wish]:
        """Return the wishes of decoding sequences, as far as there are free blocks: until `issue` they hold those.

        The last token of an answer is not guessed: the pass before it gives it anyway.
        """
        found = []
        for sequence in (one for one, _ in chosen if one.decodes and self.limits.guesses):
            known = len(sequence.tokens)
            most = min(self.limits.guesses, sequence.most - known - 1, self.blocks.room(sequence.number) - known)
            if most > 0 and self.blocks.hold(sequence.number, known + most):
                found.append(Wish(sequence, most))
        return found

    def _grow(self, sequence: Queued) -> bool:
        """Let *sequence* hold blocks for all its tokens, if need be those of sequences that came after it."""
        while not self._hold(sequence):
            later = [one for one in self._running if one.number > sequence.number and not one.flying]
            if not later:
                return False
            self._preempt(later[-1])
        return True

    def _hold(self, sequence: Queued, spare: int = -1) -> bool:
        """Let *sequence* hold blocks for all its tokens, if need be those of kept prefixes except the slot *spare*."""
        return self._room.hold(sequence.number, len(sequence.tokens), spare)

    def forget(self, slot: int) -> None:
        """Free the blocks of *slot*, a kept prefix or a sequence that was set aside, unless they are free."""
        self._room.forget(slot)

    def _forgotten(self, slot: int) -> None:
        self._aside.pop(slot, None)
        self._closed.append(slot)

    def _preempt(self, sequence: Queued) -> None:
        """Take the blocks of *sequence*, which waits again; its tokens will go through the model once more."""
        self._running.remove(sequence)
        self._close(sequence)
        sequence.slot, sequence.issued = -1, 0
        insort(self._waiting, sequence, key=number)
        self.preemptions += 1

    def _admit(self) -> None:
        """Start waiting sequences in their order, as far as all their tokens get blocks."""
        while self._waiting and len(self._running) < self.limits.running:
            sequence = self._waiting[0]
            source, prefix = self._room.longest(sequence.tokens)
            if not self._hold(sequence, source):
                source, prefix = -1, 0
                if not self._hold(sequence):
                    return
            del self._waiting[0]
            sequence.issued = prefix
            sequence.slot = next(self._slots)
            self._by_slot[sequence.slot] = sequence
            insort(self._running, sequence, key=number)
            self._opened.append(sequence.opening(sequence.most, source, prefix, sequence.request.logprobs))

    def _close(self, sequence: Queued) -> None:
        """Free the blocks of *sequence*, and let the stages forget it."""
        self.blocks.release(sequence.number)
        if sequence.slot < 0 or self._by_slot.pop(sequence.slot, None) is None:
            return
        if any(one.slot == sequence.slot for one in self._opened):
            self._opened = [one for one in self._opened if one.slot != sequence.slot]  # no stage has heard of it
        else:
            self._closed.append(sequence.slot)
