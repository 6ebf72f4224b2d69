"""The requests of an engine that are waiting, running or set aside, and their cache blocks."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from simcluster.lm.engine.batch import NewSequence, RuledSequence
from simcluster.lm.engine.cache import Room
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.request_sequence import RequestSequence, number
from simcluster.lm.request import NO_LOGPROBS, Request


@dataclass
class RequestPool:
    """Requests in order of arrival. If a running request lacks blocks, a later one is preempted.

    A preempted request waits again, ahead of those that arrived later. With *keeps_prefixes*, an
    ended request keeps its blocks for prompts with the same beginning, until other requests need
    them.
    """

    limits: EngineLimits
    keeps_prefixes: bool = False
    preemptions: int = 0
    _waiting: list[RequestSequence] = field(default_factory=list)
    _running: list[RequestSequence] = field(default_factory=list)
    _opened: list[NewSequence] = field(default_factory=list)
    _closed: list[int] = field(default_factory=list)
    _ruled: list[RuledSequence] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._room = Room(self.limits, self._forgotten)
        self.blocks = self._room.blocks
        self._numbers, self._slots = count(), count()
        self._by_slot: dict[int, RequestSequence] = {}
        self._by_id: dict[str, RequestSequence] = {}
        self._aside: dict[int, RequestSequence] = {}

    def add(self, request: Request) -> str:
        """Queue *request* and return ""; if it can never be answered, return the reason instead.

        Raise ValueError if a request with the same id has not ended yet.
        """
        if why := self.limits.refusal(request):
            return why
        if request.id in self._by_id:
            raise ValueError(f"request {request.id!r}: one with this id has not ended yet")
        sequence = self._by_id[request.id] = RequestSequence(request, next(self._numbers), list(request.prompt))
        # The new number is the largest of all, so the queue stays in the order of arrival.
        self._waiting.append(sequence)
        return ""

    def cancel(self, request: str) -> bool:
        """End *request* and free its blocks now; return False if it is unknown or has ended."""
        sequence = self._by_id.pop(request, None)
        if sequence is None:
            return False
        (self._running if sequence.slot >= 0 else self._waiting).remove(sequence)
        self._close(sequence)
        return True

    def _set_aside(self, sequence: RequestSequence) -> None:
        self._aside[sequence.slot] = sequence
        self._room.set_aside(sequence.slot, sequence.number)
        sequence.flying = 0

    @property
    def aside(self) -> list[str]:
        """The ids of the requests that `resume` can continue."""
        return [one.request.id for one in self._aside.values()]

    def resume(self, request: Request) -> list[int] | None:
        """Continue a request that was set aside; return the known tokens after *request*'s prompt.

        *request* asks for the rest of the answer to the request with the same id. Return None if no
        such request is set aside. If *request* asks for log-probabilities, which are not kept,
        return no tokens: the engine computes them again.
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
        self._ruled += sequence.ruled()
        return sequence.tokens[len(request.prompt) :]

    def part_with(self) -> list[RequestSequence]:
        """Remove and return the running requests with a first token and no piece in flight.

        Another engine continues them. Their blocks stay in use until the caller calls `retire`.
        """
        found = [one for one in self._running if one.decodes and not one.flying]
        for sequence in found:
            del self._by_id[sequence.request.id]
            self._running.remove(sequence)
        return found

    def adopt(self, request: Request, tokens: Sequence[int]) -> NewSequence | None:
        """Set aside *request*, for which another engine has cached all *tokens* except the last.

        Return the sequence that the stage must take in, or None if there is no room for it.
        """
        sequence = RequestSequence(request, next(self._numbers), [*tokens], issued=len(tokens) - 1)
        if not self._hold(sequence):
            return None
        sequence.slot = next(self._slots)
        self._set_aside(sequence)
        return sequence.opening()

    def retire(self, sequence: RequestSequence) -> None:
        """Keep the blocks of the ended *sequence* as a prefix for later prompts, or free them."""
        prompt = sequence.request.prompt
        if self.keeps_prefixes and self._room.keep(sequence.slot, sequence.number, prompt):
            del self._by_slot[sequence.slot]
        else:
            self._close(sequence)

    def _grow(self, sequence: RequestSequence) -> bool:
        """Let *sequence* hold blocks for all its tokens; return whether it does.

        If too few blocks are free, preempt sequences that came after it, the latest first.
        """
        while not self._hold(sequence):
            # Do not preempt a sequence in flight: `take` would drop its next token.
            later = [one for one in self._running if one.number > sequence.number and not one.flying]
            if not later:
                return False
            self._preempt(later[-1])
        return True

    def _hold(self, sequence: RequestSequence, spare: int = -1) -> bool:
        """Let *sequence* hold blocks for all its tokens; return whether it can. See `Room.hold`."""
        return self._room.hold(sequence.number, len(sequence.tokens), spare)

    def forget(self, slot: int) -> None:
        """Free the blocks kept for *slot*, if any: a prefix, or a sequence set aside."""
        self._room.forget(slot)

    def _forgotten(self, slot: int) -> None:
        self._aside.pop(slot, None)
        self._closed.append(slot)

    def _preempt(self, sequence: RequestSequence) -> None:
        """Free the blocks of *sequence* and queue it again; its tokens will be recomputed."""
        self._running.remove(sequence)
        self._close(sequence)
        sequence.slot, sequence.issued = -1, 0
        insort(self._waiting, sequence, key=number)
        self.preemptions += 1

    def _admit(self) -> None:
        """Start waiting sequences in order, until one cannot get blocks for all its tokens."""
        while self._waiting and len(self._running) < self.limits.running:
            sequence = self._waiting[0]
            source, prefix = self._room.longest(sequence.tokens)
            if not self._hold(sequence, source):
                # The kept prefix itself may occupy the missing blocks: retry without sharing it.
                source, prefix = -1, 0
                if not self._hold(sequence):
                    return
            del self._waiting[0]
            sequence.issued = prefix
            sequence.slot = next(self._slots)
            self._by_slot[sequence.slot] = sequence
            insort(self._running, sequence, key=number)
            self._opened.append(sequence.opening(source, prefix))
            self._ruled += sequence.ruled()

    def _close(self, sequence: RequestSequence) -> None:
        """Free the blocks of *sequence*; the next batch tells the stages to free its slot."""
        self.blocks.release(sequence.number)
        if sequence.slot < 0 or self._by_slot.pop(sequence.slot, None) is None:
            return
        if any(one.slot == sequence.slot for one in self._opened):
            # No batch has announced the sequence yet, so no stage knows it.
            self._opened = [one for one in self._opened if one.slot != sequence.slot]
            self._ruled = [one for one in self._ruled if one.slot != sequence.slot]
        else:
            self._closed.append(sequence.slot)
