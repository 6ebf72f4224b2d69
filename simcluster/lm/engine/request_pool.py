"""The request pool of an engine: the requests that wait, run or are set aside, and the blocks that they hold."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from simcluster.lm.engine.batch import NewSequence
from simcluster.lm.engine.cache.room import Room
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.queued import RequestSequence, number
from simcluster.lm.request import NO_LOGPROBS, Request


@dataclass
class RequestPool:
    """Requests in their order of arrival. If a running one needs blocks, a later one is preempted and waits again.

    *keeps_prefixes*: the blocks of a request that has ended are kept until others need them, for prompts that begin as
    its prompt does.
    """

    limits: EngineLimits
    keeps_prefixes: bool = False
    preemptions: int = 0
    _waiting: list[RequestSequence] = field(default_factory=list)
    _running: list[RequestSequence] = field(default_factory=list)
    _opened: list[NewSequence] = field(default_factory=list)
    _closed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._room = Room(self.limits, self._forgotten)
        self.blocks = self._room.blocks
        self._numbers, self._slots = count(), count()
        self._by_slot: dict[int, RequestSequence] = {}
        self._by_id: dict[str, RequestSequence] = {}
        self._aside: dict[int, RequestSequence] = {}

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

    def add(self, request: Request) -> str:
        """Put *request* into the queue and return "", or return why it can never be answered.

        Raises ValueError if one with its id has not ended yet.
        """
        if why := self.limits.refusal(request):
            return why
        if request.id in self._by_id:
            raise ValueError(f"request {request.id!r}: one with this id has not ended yet")
        sequence = self._by_id[request.id] = RequestSequence(request, next(self._numbers), list(request.prompt))
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

    def _set_aside(self, sequence: RequestSequence) -> None:
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

    def part_with(self) -> list[RequestSequence]:
        """Return the requests that have their first token: another engine continues them. `retire` frees each."""
        found = [one for one in self._running if one.decodes and not one.flying]
        for sequence in found:
            del self._by_id[sequence.request.id]
            self._running.remove(sequence)
        return found

    def adopt(self, request: Request, tokens: Sequence[int]) -> NewSequence | None:
        """Set *request* aside: another engine has cached all its *tokens* except the last. Return what the stage
        takes in, None without room.
        """
        sequence = RequestSequence(request, next(self._numbers), [*tokens], issued=len(tokens) - 1)
        if not self._hold(sequence):
            return None
        sequence.slot = next(self._slots)
        self._set_aside(sequence)
        return sequence.opening()

    def retire(self, sequence: RequestSequence) -> None:
        """Keep the prompt of *sequence*, which has ended here, or free its blocks."""
        prompt = sequence.request.prompt
        if self.keeps_prefixes and self._room.keep(sequence.slot, sequence.number, prompt):
            del self._by_slot[sequence.slot]
        else:
            self._close(sequence)

    def _grow(self, sequence: RequestSequence) -> bool:
        """Let *sequence* hold blocks for all its tokens, if need be those of sequences that came after it."""
        while not self._hold(sequence):
            later = [one for one in self._running if one.number > sequence.number and not one.flying]
            if not later:
                return False
            self._preempt(later[-1])
        return True

    def _hold(self, sequence: RequestSequence, spare: int = -1) -> bool:
        """Let *sequence* hold blocks for all its tokens, if need be those of kept prefixes except the slot *spare*."""
        return self._room.hold(sequence.number, len(sequence.tokens), spare)

    def forget(self, slot: int) -> None:
        """Free the blocks of *slot*, a kept prefix or a sequence that was set aside, unless they are free."""
        self._room.forget(slot)

    def _forgotten(self, slot: int) -> None:
        self._aside.pop(slot, None)
        self._closed.append(slot)

    def _preempt(self, sequence: RequestSequence) -> None:
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
            self._opened.append(sequence.opening(source, prefix))

    def _close(self, sequence: RequestSequence) -> None:
        """Free the blocks of *sequence*, and let the stages forget it."""
        self.blocks.release(sequence.number)
        if sequence.slot < 0 or self._by_slot.pop(sequence.slot, None) is None:
            return
        if any(one.slot == sequence.slot for one in self._opened):
            self._opened = [one for one in self._opened if one.slot != sequence.slot]  # no stage has heard of it
        else:
            self._closed.append(sequence.slot)
