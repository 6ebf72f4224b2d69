"""Laws of the scheduler, for any requests, limits, lengths of answers and cancellations."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcluster.lm.engine.batch import EngineBatch, SequenceChunk, read, written
from simcluster.lm.engine.guesses import looked_up
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.request_source import AnswerToken
from simcluster.lm.engine.scheduler import Scheduler
from simcluster.lm.request import Request
from tests.support.driven import next_batch

END, OTHER = 7, 3


@dataclass
class Run:
    """A driver of a scheduler: *lengths* are the true lengths of the answers, *cancels* the batch before which a
    request is cancelled.
    """

    requests: list[Request]
    limits: EngineLimits
    lengths: list[int]
    cancels: dict[int, int] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    answers: dict[str, list[int]] = field(default_factory=dict)
    batches: list[EngineBatch] = field(default_factory=list)
    preemptions: int = 0
    keeps: bool = False

    def go(self) -> Run:
        scheduler = self.scheduler = Scheduler(self.limits, keeps_prefixes=self.keeps)
        chosen = dict.fromkeys(range(len(self.requests)), 0)
        slots: dict[int, int] = {}
        for request in self.requests:
            if why := scheduler.add(request):
                self.ends[request.id] = why
        for turn in range(10_000):
            for which, when in self.cancels.items():
                name = str(which)
                if when == turn and scheduler.cancel(name):
                    assert name not in self.ends
                    self.ends[name] = "cancelled"
            self.check()
            issued = next_batch(scheduler)
            if issued is not None:
                assert read(written(issued.batch)) == issued.batch
                assert len(issued.tokens) == issued.batch.tokens
                self.batches.append(issued.batch)
                # A driver may know which request a slot is; the scheduler does not tell.
                for one in issued.batch.opened:
                    slots[one.slot] = scheduler._by_slot[one.slot].number
                continue
            if scheduler.is_empty:
                break
            self.check_work()
            oldest = scheduler._in_flight[0]
            tokens = []
            for piece in oldest.pieces:
                if piece.samples:
                    which = self.accepted[slots[piece.slot]]
                    tokens.append(list[int]())
                    for guess in (*piece.guesses, None):
                        chosen[which] += 1
                        tokens[-1].append(END if chosen[which] >= self.lengths[which] else OTHER)
                        if tokens[-1][-1] != guess:
                            break
            for answer in scheduler.take([one for found in tokens for one in found], list(map(len, tokens))):
                assert answer.request not in self.ends
                if isinstance(answer, AnswerToken):
                    self.answers.setdefault(answer.request, []).append(answer.token)
                else:
                    self.ends[answer.request] = answer.reason
        self.preemptions = scheduler.preemptions
        return self

    @property
    def accepted(self) -> list[int]:
        """The requests by number: refused ones have none."""
        return [which for which, request in enumerate(self.requests) if not self.limits.refusal(request)]

    def check(self) -> None:
        """Assert that blocks and requests are conserved."""
        scheduler = self.scheduler
        blocks, running = scheduler.blocks, scheduler._running
        held = {sequence.number: blocks.held(sequence.number) for sequence in running}
        kept = [blocks.held(number) for number in scheduler._room.kept.values()]
        assert blocks.free + sum(held.values()) + sum(kept) == blocks.total
        assert len(blocks._held) == len([count for count in (*held.values(), *kept) if count])
        assert scheduler._room.share == pytest.approx(sum(held.values()) / blocks.total)
        for sequence in running:  # a block for every token that has gone through the model
            assert held[sequence.number] * blocks.tokens >= sequence.issued
        assert len(running) + len(scheduler._waiting) + len(self.ends) == len(self.requests)
        assert len(running) <= self.limits.running
        assert len(scheduler._in_flight) <= self.limits.batches

    def check_work(self) -> None:
        """Assert that nothing could go on: every running sequence waits for a batch in flight, or for a block."""
        scheduler = self.scheduler
        assert scheduler._in_flight
        if len(scheduler._in_flight) == self.limits.batches:
            return
        free = scheduler.blocks.free + sum(map(scheduler.blocks.held, scheduler._room.kept.values()))
        for sequence in scheduler._running:
            if not sequence.flying and sequence.left:
                more = scheduler.blocks.needed(len(sequence.tokens)) - scheduler.blocks.held(sequence.number)
                assert more > free
        if scheduler._waiting and len(scheduler._running) < self.limits.running:
            assert scheduler.blocks.needed(len(scheduler._waiting[0].tokens)) > free


@st.composite
def runs(draw: st.DrawFn) -> Run:
    limits = EngineLimits(
        blocks=draw(st.integers(1, 12)),
        context=draw(st.integers(4, 40)),
        vocabulary=10,
        block_tokens=draw(st.integers(1, 5)),
        chunk_tokens=draw(st.integers(1, 9)),
        running=draw(st.integers(1, 5)),
        batches=draw(st.integers(1, 4)),
        guesses=draw(st.sampled_from([0, 0, 1, 3])),
    )
    count = draw(st.integers(1, 7))
    requests = [
        Request(str(i), (1,) * draw(st.integers(0, 12)), draw(st.integers(0, 12)), ends=frozenset({END}))
        for i in range(count)
    ]
    lengths = [draw(st.integers(1, 14)) for _ in requests]
    cancels = draw(st.dictionaries(st.integers(0, count - 1), st.integers(0, 20), max_size=3))
    return Run(requests, limits, lengths, cancels, keeps=draw(st.booleans()))


@pytest.mark.slow
@settings(deadline=None, max_examples=120)
@given(runs())
def test_every_request_ends_exactly_once_with_its_tokens(run: Run) -> None:
    run.go()
    scheduler = run.scheduler
    assert scheduler.is_empty
    assert scheduler._room.share == 0
    assert scheduler.blocks.free == scheduler.blocks.total or run.keeps
    assert set(run.ends) == {request.id for request in run.requests}
    for which, request in enumerate(run.requests):
        answer, reason = run.answers.get(request.id, []), run.ends[request.id]
        most = min(run.lengths[which], request.max_tokens)
        if reason == "stop":
            assert len(answer) == run.lengths[which]
            assert answer[-1] == END
        elif reason == "length":
            assert len(answer) == request.max_tokens == most
        elif reason == "cancelled":
            assert len(answer) < max(most, 1)
        else:
            assert which not in run.accepted
            assert not answer


def next_start(run: Run, batch: EngineBatch, piece: SequenceChunk) -> int:
    """Return where the sequence of *piece* goes on after *batch*, which has told which guesses were right."""
    later = run.batches[run.batches.index(batch) + 1 :]
    starts = [one.start for other in later for one in other.pieces if one.slot == piece.slot]
    assert all(piece.start < start <= piece.start + piece.count for start in starts[:1])
    return starts[0] if starts else piece.start


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(runs())
def test_pieces_of_a_sequence_follow_each_other_and_every_slot_is_opened_and_closed_once(run: Run) -> None:
    run.go()
    at: dict[int, int] = {}
    opened, closed = Counter[int](), Counter[int]()
    for batch in run.batches:
        for one in batch.opened:
            opened[one.slot] += 1
            at[one.slot] = one.prefix
            assert one.prefix == 0 or at[one.source] >= one.prefix  # it is there, and has that many tokens
            assert one.prefix % run.limits.chunk_tokens == 0
        for slot in batch.closed:
            closed[slot] += 1
            del at[slot]
        assert len({piece.slot for piece in batch.pieces}) == len(batch.pieces)
        assert batch.pieces
        prefilled = sum(piece.count for piece in batch.pieces if piece.count > 1 and not piece.guesses)
        assert prefilled <= run.limits.chunk_tokens
        for piece in batch.pieces:
            assert piece.start == at[piece.slot]
            # A chunk ends at a multiple of chunk_tokens of its sequence, or with what is known of it.
            assert piece.samples or (piece.start + piece.count) % run.limits.chunk_tokens == 0
            at[piece.slot] += piece.count
            if piece.guesses:
                at[piece.slot] = next_start(run, batch, piece)
    assert set(opened.values()) <= {1}
    assert set(closed.values()) <= {1}
    assert set(closed) <= set(opened)


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(runs(), st.lists(st.integers(1, 14), min_size=7, max_size=7))
def test_what_is_issued_does_not_depend_on_lengths_that_are_not_known_yet(run: Run, others: list[int]) -> None:
    again = Run(run.requests, run.limits, others[: len(run.requests)], run.cancels, keeps=run.keeps)
    run.go()
    again.go()
    least = min(min(run.lengths), min(again.lengths))
    same = 0
    for a, b in zip(run.batches, again.batches, strict=False):
        assert a == b
        same += a.rows
        if same >= least:  # the earliest at which an answer can have ended in one of them
            break


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(runs())
def test_limits_on_answers_decide_nothing_but_refusals_and_ends(run: Run) -> None:
    """With every limit as large as allowed and no cancellation, the same answers give the same batches."""
    run.cancels = {}
    run.limits = replace(run.limits, guesses=0)  # the room for them is what a limit leaves
    taken = [run.requests[which] for which in run.accepted]
    if not taken:
        return
    lengths = [min(run.lengths[which], run.requests[which].max_tokens) for which in run.accepted]
    first = Run(taken, run.limits, lengths).go()

    def most(request: Request) -> int:
        room = min(run.limits.context, run.limits.blocks * run.limits.block_tokens)
        return room - len(request.prompt)

    loose = [Request(one.id, one.prompt, most(one), ends=one.ends) for one in taken]
    second = Run(loose, run.limits, lengths).go()

    def pieces(one: Run) -> list[object]:
        return [batch.pieces for batch in one.batches]

    assert pieces(first) == pieces(second)


def test_a_sequence_without_a_block_takes_the_one_of_the_latest_and_both_are_answered() -> None:
    # Two requests of 2 + 4 tokens in 4 blocks of 2. Both get a block, then one for their 3rd and 4th tokens; at the 5th
    # the cache is full, so the second gives its 2 blocks away and starts again when the first has ended.
    limits = EngineLimits(blocks=4, context=8, vocabulary=10, block_tokens=2)
    requests = [Request(name, (1, 1), 4) for name in ("0", "1")]
    run = Run(requests, limits, [9, 9]).go()
    assert run.preemptions == 1
    assert {name: len(tokens) for name, tokens in run.answers.items()} == {"0": 4, "1": 4}
    again = [piece for batch in run.batches for piece in batch.pieces if piece.slot == 2]
    assert again[0].start == 0
    assert again[0].count == 5  # its prompt and 3 tokens, once more


def test_decoding_goes_on_while_a_long_prompt_is_prefilled() -> None:
    limits = EngineLimits(blocks=100, context=64, vocabulary=10, chunk_tokens=4)
    run = Run([Request("0", (1,), 10), Request("1", (1,) * 14, 1)], limits, [99, 99]).go()
    # The prompt of 14 takes chunks of 3 next to the first request's prompt... each chunk ends at a multiple of 4.
    counts = [[piece.count for piece in batch.pieces] for batch in run.batches]
    assert counts[:5] == [[1], [1, 4], [1, 4], [1, 4], [1, 2]]


def test_groups_of_equal_size_fill_the_batches_in_flight() -> None:
    limits = EngineLimits(blocks=100, context=64, vocabulary=10, batches=3)
    scheduler = Scheduler(limits)
    for name in range(6):
        assert scheduler.add(Request(str(name), (1,), 5)) == ""
    issued = next_batch(scheduler)  # the prompts go together
    assert issued is not None
    scheduler.take([1] * 6)
    sizes = []
    while (issued := next_batch(scheduler)) is not None:
        sizes.append(len(issued.batch.pieces))
    assert sizes == [2, 2, 2]


def test_a_cancelled_request_frees_its_blocks_at_once_even_in_flight() -> None:
    scheduler = Scheduler(EngineLimits(blocks=2, context=8, vocabulary=10, block_tokens=4))
    assert scheduler.add(Request("0", (1, 2, 3, 4, 5), 3)) == ""
    assert next_batch(scheduler) is not None
    assert scheduler.blocks.free == 0
    assert scheduler.cancel("0")
    assert scheduler.blocks.free == 2
    assert not scheduler.cancel("0")
    assert scheduler.add(Request("1", (1,), 1)) == ""
    assert scheduler.take([4]) == []  # the token of a request that has ended
    issued = next_batch(scheduler)
    assert issued is not None
    assert issued.batch.closed == (0,)


def test_guesses_without_free_blocks_are_left_out() -> None:
    # With their first tokens, the requests have 4 and 2 blocks of 2; three guesses of the first one take another block.
    for blocks, guesses in ((7, (2, 3, 1)), (6, ())):
        scheduler = Scheduler(EngineLimits(blocks=blocks, context=16, vocabulary=10, block_tokens=2, guesses=3))
        assert scheduler.add(Request("0", (1, 2, 3, 1, 2, 3), 6)) == ""
        assert scheduler.add(Request("1", (4, 5, 6), 6)) == ""
        assert next_batch(scheduler) is not None
        scheduler.take([1, 1])
        issued = next_batch(scheduler)
        assert issued is not None
        assert [piece.guesses for piece in issued.batch.pieces] == [guesses, ()]
        assert issued.tokens == (1, *guesses, 1)
        assert (scheduler.preemptions, scheduler.blocks.free) == (0, 0)


def test_a_prompt_begins_with_the_chunks_that_an_earlier_one_left() -> None:
    scheduler = Scheduler(EngineLimits(blocks=6, context=24, vocabulary=10, block_tokens=4, chunk_tokens=4), True)

    def answered(name: str, prompt: tuple[int, ...]) -> list[tuple[int, int, int]]:
        """Return (start, count, prefix) of the pieces of a request with an answer of one token."""
        assert scheduler.add(Request(name, prompt, 1)) == ""
        rows = []
        while (issued := next_batch(scheduler)) is not None:
            (piece,) = issued.batch.pieces
            prefix = sum(one.prefix for one in issued.batch.opened)
            rows.append((piece.start, piece.count, prefix))
            scheduler.take([3] * piece.samples)
        return rows

    first = (1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert answered("0", first) == [(0, 4, 0), (4, 4, 0), (8, 1, 0)]
    assert scheduler._room.share == 0
    # Two chunks in common; then one, since a token must be left to compute; then none.
    assert answered("1", (*first[:8], 1, 1)) == [(8, 2, 8)]
    assert answered("2", first[:8]) == [(4, 4, 4)]
    assert answered("3", (2, *first[:8])) == [(0, 4, 0), (4, 4, 0), (8, 1, 0)]
    # A request for the whole cache takes the blocks of all kept ones.
    assert answered("4", (7,) * 23)[0] == (0, 4, 0)
    assert answered("5", first)[0] == (0, 4, 0)


@pytest.mark.parametrize(
    ("tokens", "most", "guesses"),
    [
        ((1, 2, 3, 9, 1, 2, 3), 2, (9, 1)),
        ((1, 2, 3, 9, 1, 2, 3), 9, (9, 1, 2, 3)),
        ((1, 2, 8, 1, 2, 9, 1, 2), 1, (9,)),  # the latest
        ((3, 1, 2, 8, 5, 1, 2, 9, 3, 1, 2), 1, (8,)),  # the longest
        ((1, 2, 3), 4, ()),
        ((2, 2, 2), 4, (2,)),
        ((1, 2, 9, 1, 2), 0, ()),
    ],
)
def test_what_followed_the_last_tokens_before_is_guessed(
    tokens: tuple[int, ...], most: int, guesses: tuple[int, ...]
) -> None:
    assert looked_up(tokens, most) == guesses


def test_right_guesses_save_passes_and_wrong_ones_change_nothing() -> None:
    limits = EngineLimits(blocks=100, context=64, vocabulary=10, guesses=3)
    run = Run([Request("0", (5, 6), 12, ends=frozenset({END}))], limits, [9]).go()
    # Tokens 3, 3, 3 come one by one; then 3, 3, 3 is guessed from the two before, as far as it has been seen: 1 of 3.
    assert run.answers["0"] == [3] * 8 + [END]
    assert run.ends == {"0": "stop"}
    assert len(run.batches) < 9


def test_an_id_is_taken_until_its_request_has_ended() -> None:
    scheduler = Scheduler(EngineLimits(blocks=2, context=8, vocabulary=10))
    assert scheduler.add(Request("0", (1,), 1)) == ""
    with pytest.raises(ValueError, match="request '0': one with this id has not ended yet"):
        scheduler.add(Request("0", (2,), 1))
    scheduler.cancel("0")
    assert scheduler.add(Request("0", (2,), 1)) == ""


def test_what_can_never_fit_is_refused_with_the_numbers() -> None:
    scheduler = Scheduler(EngineLimits(blocks=2, context=10, vocabulary=10, block_tokens=4))
    for prompt, most, why in (
        ((), 1, "the prompt has no token"),
        ((1,), 0, "max_tokens: found 0, expected at least 1"),
        ((1, 11), 1, "the prompt has the token 11, but the vocabulary ends at 9"),
        ((1,) * 8, 3, "8 tokens of prompt and 3 of answer exceed the context of 10"),
        ((1,) * 8, 1, "8 tokens of prompt and 1 of answer exceed the cache of 8 tokens"),
    ):
        assert scheduler.add(Request("0", prompt, most)) == why
    assert scheduler.is_empty
