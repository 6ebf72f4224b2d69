"""Agreement on the next group: all ranks stop, and report to the lowest one which captures they hold and whom they
lost.

The leader calls, waits for an answer from every member that it knows to be alive, and decides. Another loss meanwhile,
even its own, only means another round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from simcluster.errors import ENDED, PeerLost
from simcluster.payload import Message
from simcluster.regroup.mail import Ear, Voice
from simcluster.regroup.membership_view import MembershipFacts, decide, form, has_raised, step_of_leave
from simcluster.regroup.messages import (
    TAG,
    Call,
    CaptureName,
    Decision,
    Exclusion,
    JoinRequest,
    Life,
    Proposal,
    Word,
    mark_of,
)
from simcluster.transport import ANY, Transport

NOBODY = "no rank is left that holds a capture of the run"


class Council:
    """This node's part in the agreement. *unrest*: the present group must be formed again."""

    def __init__(self, node: Transport, names: Sequence[str], members: Sequence[int], incarnation: int) -> None:
        self._node, self._names = node, names
        self.facts = MembershipFacts(node.rank, node.size, incarnation)
        self.members = sorted(members)
        self.number, self.leader_of_group = 0, -1
        self._lives = [0] * node.size  # the life of each rank that belongs to the present group
        self.unrest = False
        self.is_done = False  # this rank's algorithm has ended in the present group
        self.failure: PeerLost | None = None  # of a member whose own code raised: the run has failed
        self.leaves_at: int | None = None  # a member leaves at the end of this step: it is the last of all
        self._news = asyncio.Event()
        self._voice = Voice(node, self.facts, self.lose, self.until)
        self.ear = Ear(node, self.facts, self._hear, self.lose, self.notify)
        self._round, self._calling = 0, False
        self._calls: dict[Life, Call] = {}  # the last one of each life that called, in the order of arrival
        self._answers: dict[Life, Proposal] = {}
        self._decided: dict[Life, Decision | Exclusion] = {}

    # listening

    def lose(self, lost: PeerLost) -> None:
        """Take in a PeerLost, wherever it was raised. It concerns one life of its rank, not later ones."""
        rank = lost.rank
        is_past = self.facts.is_past(rank, lost.incarnation)
        if is_past:
            self.ear.behind.add(rank)
            self._voice.say_again(rank)
        is_news = self.facts.lose(rank, lost.reason, lost.incarnation)
        is_counted_on = is_past and lost.incarnation >= self._lives[rank] and not self.unrest
        if not is_news and not is_counted_on:
            return
        if has_raised(lost.reason):
            self.failure = self.failure or lost
        if rank in self.members and lost.reason != ENDED:
            self._stir(step_of_leave(lost.reason))
        self._news.set()

    def _stir(self, leaves_at: int | None) -> None:
        """Regroup at once, or at the end of the step at which a member leaves."""
        if leaves_at is None:
            self.unrest = True
        else:
            self.leaves_at = max(leaves_at, self.leaves_at or 0)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when *condition* holds; every change to it must be notified."""
        while not condition():
            self._news.clear()
            await self._news.wait()

    def notify(self, _: object = None) -> None:
        """Wake `until`: something that it waits for may have changed."""
        self._news.set()

    def close(self) -> None:
        """Stop sending and receiving."""
        self.ear.close()
        self._voice.close()

    def _hear(self, message: Message) -> None:
        """Take in a message. Messages from a past life are ignored."""
        source, life = message.source, (message.source, message.incarnation)
        word: Word = msgspec.json.decode(message["word"], type=Word)
        if life < self.facts.life(source):
            return
        if not isinstance(word, JoinRequest):
            self.facts.meet(*life)  # it may never have asked this rank to let it in
        match word:
            case JoinRequest() if source not in self.members or word.incarnation > self._lives[source]:
                if self.facts.comes(source, word.incarnation) and not self.members:
                    # The sender may lead before it lets this rank in, and has missed this rank's JoinRequest.
                    self._voice.say(source, JoinRequest(self.facts.lives[self.facts.rank]))
                if (self._leads or source in self.members) and not self.is_done:
                    self._stir(None)  # the member's life in the group is over, even if its loss was not reported
            case Call():
                self.facts.asking.discard(source)  # it belongs to a group
                self._calls.pop(life, None)
                self._calls[life] = word
                self._decided.pop(life, None)
                if source == self._leader:
                    self._stir(word.leaves_at)
            case Proposal():
                is_news = self.facts.merge(word.dead, word.cuts)
                if self._calling and word.round == self._round:
                    self._answers[life] = word
                elif word.number >= self.number or is_news:
                    self._stir(None if self.is_done else word.leaves_at)
            case Decision() | Exclusion():
                self._decided[life] = word
        self._news.set()

    # agreeing

    async def ask_in(self) -> None:
        """Ask all peers to let this node in, in its present life. Raises PeerLost if there are none."""
        if not self._node.peers:
            await self._node.recv(ANY, TAG)
        for rank in self._node.peers:
            self._voice.say(rank, JoinRequest(self.facts.lives[self.facts.rank]))

    async def agree(self, held: Sequence[CaptureName]) -> Decision | None:
        """Return the next group once agreed on; None if this is the only node that has not finished.

        *held* names this rank's captures. Raises PeerLost if this rank is excluded, or if a member's code has failed.
        """
        decision = None
        self._voice.forget()
        while (decision := decision or self._due()) is None:
            if self.failure is not None:
                raise self.failure
            leader = self._leader
            self.ear.drain(sorted({*self.members, *self._node.peers}), self.number + 1)
            if leader == self.facts.rank:
                decided, decision = await self._lead(held)
                if decided and decision is None:
                    return None
            else:
                await self._follow(leader, held)
        return self._take(decision)

    def _due(self) -> Decision | None:
        """Return the newest decision still to be taken by this rank: it holds even if its leader is lost by now."""
        me = self.facts.rank
        found = [word for word in self._decided.values() if isinstance(word, Decision)]
        due = [word for word in found if word.number > self.number and word.lives[me] == self.facts.lives[me]]
        return max(due, key=lambda word: word.number, default=None)

    @property
    def _leader(self) -> int | None:
        """Return the lowest living member; for a rank that asks to be let in, the living rank that called last."""
        if not self.members:
            callers = [life for life in self._calls if life == self.facts.life(life[0])]
            here = [rank for rank, _ in callers if not self.facts.is_dead(rank) and rank not in self.facts.finished]
            return here[-1] if here else None
        away = self.facts.finished | self.facts.asking
        return min(rank for rank in self.members if not self.facts.is_dead(rank) and rank not in away)

    @property
    def _leads(self) -> bool:
        return self._leader == self.facts.rank

    async def _lead(self, held: Sequence[CaptureName]) -> tuple[bool, Decision | None]:
        """Lead one round. Return (whether it reached a decision, the decision)."""
        self._round, self._calling = self._round + 1, True
        self._answers, count = {}, self.facts.count
        included, excluded = form(self.facts, self.members)
        others = [rank for rank in included if rank != self.facts.rank]
        for rank in [*others, *excluded]:
            self._voice.say(rank, Call(self._round, self.leaves_at))

        def overtaken() -> bool:
            return self.facts.count > count or not self._leads or self._due() is not None

        await self.until(lambda: overtaken() or all(self.facts.life(rank) in self._answers for rank in others))
        if overtaken():
            return False, None
        for rank, because in excluded.items():
            self._voice.say(rank, Exclusion(because))
        if self.is_done and not others:
            return True, None
        answers = {rank: self._answers[self.facts.life(rank)] for rank in others}
        decision = decide(self.facts, self.number, self.members, held, answers)
        if decision is None:  # those that held captures are lost, and could not transfer one; others will find out too
            gone = min(set(range(len(self._names))) - set(included) or {self.facts.rank})
            raise PeerLost(gone, self._names[gone], NOBODY)
        for rank in others:
            self._voice.say(rank, decision)
        return True, decision

    async def _follow(self, leader: int | None, held: Sequence[CaptureName]) -> None:
        """Answer the calls of *leader* until there is a decision, or it no longer leads."""
        said: tuple[int, Life, int] | None = None
        while self._leader == leader and self._due() is None:
            if leader is not None:
                if self.facts.parted(self.facts.rank, leader):
                    raise self._lost(leader)  # of two ranks cut off from each other, the higher one leaves
                life = self.facts.life(leader)
                call = self._calls.get(life)
                now = self.facts.count, life, call.round if call is not None else 0
                if now != said:
                    said = now
                    known = self.facts.dead, self.facts.cuts
                    self._voice.say(leader, Proposal(now[2], self.number, list(held), *known, self.leaves_at))
                decided = self._decided.get(life)
                if isinstance(decided, Exclusion):
                    raise self._lost(decided.because)
            self._check_hope()
            self._news.clear()
            await self._news.wait()

    def _check_hope(self) -> None:
        """Raise PeerLost if this rank asks to be let in but no peer is left, or only peers that ask as well."""
        if self.members:
            return
        left = [rank for rank in self._node.peers if rank not in self.facts.asking]
        if not left:
            gone = min(self.facts.finished or self.facts.asking or set(range(len(self._names))) - {self.facts.rank})
            raise PeerLost(gone, self._names[gone], ENDED if self.facts.finished else NOBODY)

    def _take(self, decision: Decision) -> Decision:
        """Make this node a member of the decided group."""
        self.number, self.leader_of_group, self.members = decision.number, decision.leader, decision.members
        self._lives = [*decision.lives]
        self.facts.let_in(decision.members, decision.lives)
        self.unrest, self.leaves_at, self.is_done = False, None, False
        self._calling = False
        decisions = {life: word for life, word in self._decided.items() if isinstance(word, Decision)}
        self._decided = {life: word for life, word in decisions.items() if word.number > self.number}
        self._calls.pop(self.facts.life(decision.leader), None)
        self.ear.watch()
        # What arrived before the decision remains valid: another group may be due already.
        if any(self._lives[rank] < self.facts.lives[rank] or self.facts.is_lost(rank) for rank in self.members):
            self._stir(None)
        elif self._leads:
            if form(self.facts, self.members)[0] != self.members:
                self._stir(None)  # a rank has asked this leader that no earlier leader let in
        elif self._leader is not None and (call := self._calls.get(self.facts.life(self._leader))) is not None:
            self._stir(call.leaves_at)  # the present leader was faster, and has called
        return decision

    def _lost(self, rank: int) -> PeerLost:
        return PeerLost(rank, self._names[rank], self.facts.reasons.get(rank, NOBODY))

    # the border between two groups

    async def cross(self) -> None:
        """Return when no message of an earlier group is left in any member's stream to this one, or there is unrest."""
        mark = mark_of(self.number, self.leader_of_group)
        others = [rank for rank in self.members if rank != self.facts.rank]
        for rank in others:
            self._voice.post(rank, mark)

        behind: dict[int, None] = {}
        seen: object = None

        def over() -> bool:
            nonlocal behind, seen
            facts, ear = self.facts, self.ear
            heard, ended = ear.since_last()
            if (present := (facts.count, tuple(facts.lives))) != seen or ear.behind:
                seen = present
                behind = dict.fromkeys([rank for rank in others if ear.marks.get(facts.life(rank)) != mark])
                gone = any(facts.is_lost(rank) or rank in facts.finished for rank in behind)
                self.unrest = self.unrest or gone
                ended = set(behind)
            for rank in heard:  # of n members, each hears n marks: looking at all each time would take n^3
                if ear.marks.get(facts.life(rank)) == mark:
                    behind.pop(rank, None)
            if not self.unrest:
                ear.drain([rank for rank in sorted(ended) if rank in behind], self.number)
            return self.unrest or not behind

        await self.until(over)
        self.ear.stop_draining()
