"""Agreement on the next group: all ranks stop, and report their captures and losses to the leader,
which is the lowest living rank.

The leader calls every rank that it knows to be alive, waits for their answers, and decides. If
another rank is lost meanwhile, even the leader, another round follows.
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
    """This node's side of the agreement. *unrest*: whether the present group must be replaced by a
    new one.
    """

    def __init__(self, node: Transport, names: Sequence[str], members: Sequence[int], incarnation: int) -> None:
        self._node, self._names = node, names
        self.facts = MembershipFacts(node.rank, node.size, incarnation)
        self.members = sorted(members)
        self.number, self.leader_of_group = 0, -1
        self._lives = [0] * node.size  # by rank, the life in the present group
        self.unrest = False
        self.is_done = False  # this rank's algorithm has ended in the present group
        # The loss of a member because its code raised an error, which makes the run fail.
        self.failure: PeerLost | None = None
        # The step after which a member leaves, so that it is the last one of this group.
        self.leaves_at: int | None = None
        self._news = asyncio.Event()
        self._voice = Voice(node, self.facts, self.lose, self.until)
        self.ear = Ear(node, self.facts, self._hear, self.lose, self.notify)
        self._round, self._calling = 0, False
        self._calls: dict[Life, Call] = {}  # life -> its last call, in the order of arrival
        self._answers: dict[Life, Proposal] = {}
        self._decided: dict[Life, Decision | Exclusion] = {}

    # Listening.

    def lose(self, lost: PeerLost) -> None:
        """Process a PeerLost that a send or recv has raised.

        It concerns only the life of the rank that it names, and no later life.
        """
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
        """Request a new group: at once if *leaves_at* is None, otherwise at the end of that
        step.
        """
        if leaves_at is None:
            self.unrest = True
        else:
            self.leaves_at = max(leaves_at, self.leaves_at or 0)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until *condition* is true. Code that may make it true must call `notify`."""
        while not condition():
            self._news.clear()
            await self._news.wait()

    def notify(self, _: object = None) -> None:
        """Make `until` check its condition again."""
        self._news.set()

    def close(self) -> None:
        """Stop sending and receiving."""
        self.ear.close()
        self._voice.close()

    def _hear(self, message: Message) -> None:
        """Process a message. A message from a past life is ignored."""
        source, life = message.source, (message.source, message.incarnation)
        word: Word = msgspec.json.decode(message["word"], type=Word)
        if life < self.facts.life(source):
            return
        if not isinstance(word, JoinRequest):
            self.facts.meet(*life)  # the sender may never have asked this rank
        match word:
            case JoinRequest() if source not in self.members or word.incarnation > self._lives[source]:
                if self.facts.comes(source, word.incarnation) and not self.members:
                    # Ask again: the sender may become the leader, and its new life has not received
                    # this rank's JoinRequest.
                    self._voice.say(source, JoinRequest(self.facts.lives[self.facts.rank]))
                if (self._leads or source in self.members) and not self.is_done:
                    # The sender's earlier life has left the group, even if no loss was reported.
                    self._stir(None)
            case Call():
                self.facts.asking.discard(source)  # a rank that calls belongs to a group
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

    # Agreeing.

    async def ask_in(self) -> None:
        """Ask all peers to let this node, in its present life, into their group.

        Raise PeerLost if it has no peers.
        """
        if not self._node.peers:
            await self._node.recv(ANY, TAG)
        for rank in self._node.peers:
            self._voice.say(rank, JoinRequest(self.facts.lives[self.facts.rank]))

    async def agree(self, held: Sequence[CaptureName]) -> Decision | None:
        """Agree with the other nodes on the next group, and return the decision.

        Return None if this rank's algorithm has ended and no other rank is left. *held* has the
        names of this rank's captures. Raise PeerLost if this rank is excluded, or if a member's
        code has failed.
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
        """Return the newest decision that this rank has not adopted yet; None if there is none.

        A decision is valid even if its leader has been lost since.
        """
        me = self.facts.rank
        found = [word for word in self._decided.values() if isinstance(word, Decision)]
        due = [word for word in found if word.number > self.number and word.lives[me] == self.facts.lives[me]]
        return max(due, key=lambda word: word.number, default=None)

    @property
    def _leader(self) -> int | None:
        """The lowest living member.

        For a rank that asks to be let in, it is the living rank that called most recently, or None.
        """
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
        """Lead one round.

        Return (whether the round had a result, the decision). The decision is None if this rank's
        algorithm has ended and no other rank is left.
        """
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
        # All ranks with captures are lost; every other rank will discover that, too.
        if decision is None:
            gone = min(set(range(len(self._names))) - set(included) or {self.facts.rank})
            raise PeerLost(gone, self._names[gone], NOBODY)
        for rank in others:
            self._voice.say(rank, decision)
        return True, decision

    async def _follow(self, leader: int | None, held: Sequence[CaptureName]) -> None:
        """Answer the calls of *leader* until a decision arrives or another rank leads."""
        said: tuple[int, Life, int] | None = None
        while self._leader == leader and self._due() is None:
            if leader is not None:
                if self.facts.parted(self.facts.rank, leader):
                    # Of two ranks that are cut off from each other, the higher one leaves.
                    raise self._lost(leader)
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
        """Raise PeerLost if this rank asks to be let in, but no peer is left that could let it
        in.
        """
        if self.members:
            return
        left = [rank for rank in self._node.peers if rank not in self.facts.asking]
        if not left:
            gone = min(self.facts.finished or self.facts.asking or set(range(len(self._names))) - {self.facts.rank})
            raise PeerLost(gone, self._names[gone], ENDED if self.facts.finished else NOBODY)

    def _take(self, decision: Decision) -> Decision:
        """Make this node a member of the group that *decision* defines, and return the decision."""
        self.number = decision.number
        self.leader_of_group = decision.leader
        self.members = decision.members
        self._lives = [*decision.lives]
        self.facts.let_in(decision.members, decision.lives)
        self.unrest = False
        self.leaves_at = None
        self.is_done = False
        self._calling = False
        decisions = {life: word for life, word in self._decided.items() if isinstance(word, Decision)}
        self._decided = {life: word for life, word in decisions.items() if word.number > self.number}
        self._calls.pop(self.facts.life(decision.leader), None)
        self.ear.watch()
        # Losses and calls that arrived before the decision remain valid: another group may be due
        # already.
        if any(self._lives[rank] < self.facts.lives[rank] or self.facts.is_lost(rank) for rank in self.members):
            self._stir(None)
        elif self._leads:
            if form(self.facts, self.members)[0] != self.members:
                # A rank has asked this leader to be let in, and no earlier leader has let it in.
                self._stir(None)
        elif self._leader is not None and (call := self._calls.get(self.facts.life(self._leader))) is not None:
            self._stir(call.leaves_at)  # the present leader has called already for the next group
        return decision

    def _lost(self, rank: int) -> PeerLost:
        return PeerLost(rank, self._names[rank], self.facts.reasons.get(rank, NOBODY))

    # The border between two groups.

    async def cross(self) -> None:
        """Wait until no stream from a member to this node holds a message of an earlier group.

        Return early if another group must follow.
        """
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
            # Check only new marks: with n members there are n marks, and checking all n at each
            # mark would take n^3 steps in all.
            for rank in heard:
                if ear.marks.get(facts.life(rank)) == mark:
                    behind.pop(rank, None)
            if not self.unrest:
                ear.drain([rank for rank in sorted(ended) if rank in behind], self.number)
            return self.unrest or not behind

        await self.until(over)
        self.ear.stop_draining()
