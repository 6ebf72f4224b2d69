"""The desk between two threads: what is asked comes out once, and nothing is left after an end."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from simcluster_backends.sim.run import run_bodies

from simcluster.errors import PeerLost
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.request_source import AnswerEnd, AnswerToken, Cancel, EngineLoad
from simcluster.lm.request import Request
from simcluster.lm.serving import node_program
from simcluster.lm.serving.desk.broker_client import HOST, BrokerClient, BrokerServer
from simcluster.lm.serving.desk.broker_messages import FailureMessage, HelloMessage, Up, written
from simcluster.lm.serving.desk.request_broker import PendingAnswer, RequestBroker, Unavailable
from simcluster.lm.serving.pacer import TICK_S, pace
from simcluster.lm.serving.setup import PlacementLayout, PlacementState

if TYPE_CHECKING:
    from simcluster.lm.serving.program import ServingPart
    from simcluster.transport import Transport


def request(number: int, most: int = 4) -> Request:
    return Request(str(number), (1, 2, 3), most)


def a_front(**settings: Any) -> RequestBroker:
    """Return an open desk of the running loop."""
    front = RequestBroker(**settings)
    front.open(asyncio.get_running_loop().call_soon_threadsafe)
    return front


def test_an_answer_has_its_tokens_in_order_and_one_end() -> None:
    async def run() -> None:
        front = a_front()
        answer = front.ask(request(0))
        assert await front.next() == request(0)
        front.token(AnswerToken("0", 7))
        front.token(AnswerToken("0", 8))
        assert await answer.more() == ([7, 8], None)
        front.end(AnswerEnd("0", "stop"))
        front.end(AnswerEnd("0", "error", "a second end"))
        front.token(AnswerToken("0", 9))
        assert await answer.more() == ([], AnswerEnd("0", "stop"))
        assert (answer.tokens, front.open_requests, front.is_idle) == ([7, 8], 0, True)

    asyncio.run(run())


def test_an_interrupt_tells_open_answers_that_the_server_is_stopping() -> None:
    async def run() -> None:
        front = a_front()
        answer = front.ask(request(0))
        with pytest.raises(KeyboardInterrupt), node_program.in_this_process(front, "a key"):
            raise KeyboardInterrupt
        assert await answer.more() == ([], AnswerEnd("0", "error", "the server is stopping"))

    asyncio.run(run())


def test_a_request_of_another_thread_wakes_the_engines_loop() -> None:
    async def engine(front: RequestBroker, order: list[Any]) -> None:
        front.open(asyncio.get_running_loop().call_soon_threadsafe)
        opened.set()
        order.append(await front.next())
        front.token(AnswerToken("0", 7))
        front.end(AnswerEnd("0", "length"))

    async def ask(front: RequestBroker) -> tuple[list[int], AnswerEnd | None]:
        answer = front.ask(request(0))
        tokens: list[int] = []
        while True:
            more, end = await answer.more()
            tokens += more
            if end is not None:
                return tokens, end

    front, orders, opened = RequestBroker(), list[Any](), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(engine(front, orders)))
    thread.start()
    opened.wait()
    assert asyncio.run(ask(front)) == ([7], AnswerEnd("0", "length"))
    thread.join()
    assert orders == [request(0)]


def test_a_limited_number_of_requests_is_open_and_none_before_the_model_is_loaded() -> None:
    async def run() -> None:
        with pytest.raises(Unavailable, match="the model is being loaded"):
            RequestBroker().ask(request(0))
        front = a_front(most=2)
        front.ask(request(0))
        front.ask(request(1))
        with pytest.raises(Unavailable, match="2 requests are open, and at most 2 are taken"):
            front.ask(request(2))
        front.end(AnswerEnd("0", "stop"))
        front.ask(request(2))

    asyncio.run(run())


def test_a_cancel_is_one_order_and_none_for_an_answer_that_has_ended() -> None:
    async def run() -> None:
        front = a_front()
        first, second = front.ask(request(0)), front.ask(request(1))
        front.end(AnswerEnd("1", "stop"))
        front.cancel(first)
        front.cancel(second)
        assert [await front.next() for _ in range(3)] == [request(0), request(1), Cancel("0")]
        front.stop()
        assert await front.next() == Cancel("0")  # as at any stop
        assert await front.next() is None

    asyncio.run(run())


def test_a_closed_desk_ends_its_answers_with_the_reason_and_can_be_opened_again() -> None:
    async def run() -> None:
        front = a_front()
        answer = front.ask(request(0))
        front.close("rank 1 (b) is lost")
        assert await answer.more() == ([], AnswerEnd("0", "error", "rank 1 (b) is lost"))
        with pytest.raises(Unavailable, match="rank 1"):
            front.ask(request(1))
        front.open(asyncio.get_running_loop().call_soon_threadsafe)
        front.ask(request(2))
        assert await front.next() == request(2)  # the orders of before are gone

    asyncio.run(run())


def test_the_queue_ends_with_the_load_that_has_begun_it() -> None:
    """Two of three requests still wait, so the first has begun; the clock is 1 then, and 2 at its token."""

    async def run() -> None:
        now_s = [0.0]
        front = a_front(now=lambda: now_s[0])
        answers = [front.ask(request(number)) for number in range(3)]
        for _ in answers:
            await front.next()
        now_s[0] = 1.0
        front.load(EngineLoad(1, 2, 0.5, 0, ()))
        now_s[0] = 2.0
        front.token(AnswerToken("0", 7))
        assert [answer.begun_s for answer in answers] == [1.0, None, None]
        assert answers[0].ttft_s == 2.0

    asyncio.run(run())


def test_virtual_time_is_at_most_a_tick_ahead_of_real_time_and_stands_still_while_idle() -> None:
    """In real time every computation of 1 s virtual takes 0.3 s here, then 2 s: it is blocked for the rest, or late."""
    now_s, blocked_s = [100.0], list[float]()

    class Idle(RequestBroker):
        def wait(self, most_s: float) -> None:
            now_s[0] += 50.0  # a night without requests
            self.is_asked = True

        @property
        def is_idle(self) -> bool:
            return not getattr(self, "is_asked", False)

    def block(seconds: float) -> None:
        blocked_s.append(seconds)
        now_s[0] += seconds

    async def body(node: Any) -> list[float]:
        loop = asyncio.get_running_loop()
        front = Idle()
        pacing = asyncio.create_task(pace(front, lambda: now_s[0], block))
        await asyncio.sleep(2 * TICK_S)
        start_s, real_s, ends_s = loop.time(), now_s[0], list[float]()
        for work_s in (0.3, 2.0):
            now_s[0] += work_s  # computed at once, as the simulator does
            await asyncio.sleep(1.0)
            ends_s += [now_s[0] - real_s, loop.time() - start_s, front.lag_s]
        pacing.cancel()
        return ends_s

    (found,) = run_bodies([body])
    first_s, first_virtual_s, lag_s, second_s, second_virtual_s, second_lag_s = found
    assert first_virtual_s == pytest.approx(1.0)
    assert first_s == pytest.approx(1.0, abs=2 * TICK_S)
    assert lag_s == 0.0
    # 1 s real, then 2 s that virtual time takes 1 s for: all of that second is late.
    assert second_virtual_s == pytest.approx(2.0)
    assert second_s == pytest.approx(3.0, abs=2 * TICK_S)
    assert second_lag_s == pytest.approx(1.0, abs=2 * TICK_S)


def test_counts_of_all_engines_are_added_up_and_the_placement_is_the_last_ones() -> None:
    """Each engine counts from 0. The first one prefills 7 tokens and then 9 in all, the second one 4."""
    placed = PlacementState(PlacementLayout("replicas", (0, 2), (3, 3)), EngineLimits(10, 100, 50), {1: "killed"})

    async def run() -> None:
        front, seen = a_front(), list[int]()
        front.watch(lambda load: seen.append(front.engines))
        for prefilled, preemptions in ((7, 1), (9, 2)):
            front.load(EngineLoad(1, 0, 0.5, preemptions, (), prefilled))
        front.pause()
        front.open(asyncio.get_running_loop().call_soon_threadsafe, placed)
        front.load(EngineLoad(1, 0, 0.5, 0, (), 4))
        assert (front.counts["prefilled"], front.counts["preemptions"], front.engines) == (13, 2, 2)
        assert front.placed == placed
        assert seen == [1, 1, 2, 2]  # the third one when the second engine began

    asyncio.run(run())


class Opening(RequestBroker):
    """Says when it is opened, to the loop in which it was made."""

    def __init__(self) -> None:
        super().__init__()
        self._loop, self.opened, self.is_waiting = asyncio.get_running_loop(), asyncio.Event(), False

    def open(self, wake: Any = None, placed: PlacementState | None = None) -> None:
        super().open(wake, placed)
        self.is_waiting = False
        self._loop.call_soon_threadsafe(self.opened.set)

    def pause(self) -> None:
        super().pause()
        self.is_waiting = True


def test_an_engine_elsewhere_serves_over_the_bridge_and_says_why_it_ends() -> None:
    async def run() -> None:
        front = Opening()
        bridge = BrokerServer(front)
        bridge.start()
        stranger = await BrokerClient.connected(bridge.port, "another key", "a")
        stranger.ready()
        assert await stranger.next() is None  # its connection was closed
        await stranger.close()
        assert front.why_not == "the model is being loaded"

        far = await BrokerClient.connected(bridge.port, bridge.key, "a")
        far.ready()
        await front.opened.wait()
        first, second = front.ask(request(0)), front.ask(request(1))
        assert [await far.next(), await far.next()] == [request(0), request(1)]
        far.token(AnswerToken("0", 7))
        far.end(AnswerEnd("0", "stop"))
        while (await first.more())[1] is None:
            continue
        assert first.tokens == [7]
        front.cancel(second)
        assert await far.next() == Cancel("1")
        await far.failed("rank 1 (b) is lost")
        assert await second.more() == ([], AnswerEnd("1", "error", "rank 1 (b) is lost"))
        bridge.close()

    asyncio.run(run())


def test_what_is_left_of_each_request_goes_to_the_next_engine_and_no_token_comes_twice() -> None:
    async def run() -> None:
        front = a_front()
        asked = [front.ask(Request(str(number), (1, 2), 3, ends=frozenset({9}))) for number in range(5)]
        taken = [await front.next() for _ in asked[:4]]  # the last one waits
        assert taken == [answer.request for answer in asked[:4]]
        for request, tokens in (("0", (7,)), ("1", (7, 9)), ("2", (7, 7, 7)), ("3", (7,))):
            for token in tokens:
                front.token(AnswerToken(request, token))
        front.cancel(asked[3])
        assert await front.next() == asked[4].request
        front.pause()  # the engine is gone, without an end of any request and without the cancel
        await asyncio.sleep(0)
        assert [answer.outcome for answer in asked] == [None] * 5
        front.open(asyncio.get_running_loop().call_soon_threadsafe)
        assert [await front.next(), await front.next()] == [
            Request("0", (1, 2, 7), 2, ends=frozenset({9})), asked[4].request
        ]  # fmt: skip
        assert [answer.outcome for answer in asked[1:4]] == [
            AnswerEnd("1", "stop"),
            AnswerEnd("2", "length"),
            AnswerEnd("3", "cancelled"),
        ]
        front.token(AnswerToken("0", 8))
        front.end(AnswerEnd("0", "stop"))
        assert await asked[0].more() == ([7, 8], AnswerEnd("0", "stop"))
        assert front.open_requests == 1

    asyncio.run(run())


async def said_to(bridge: BrokerServer, *messages: Up) -> bytes:
    """Say *messages* over a connection of their own; return what comes back until the bridge has closed it."""
    reader, writer = await asyncio.open_connection(HOST, bridge.port)
    writer.writelines(written(message) for message in messages)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_an_engine_whose_process_dies_is_named_unless_another_one_takes_its_place() -> None:
    async def run() -> None:
        front = Opening()
        bridge = BrokerServer(front)
        bridge.start()
        first = await BrokerClient.connected(bridge.port, bridge.key, "a")
        first.ready()
        await front.opened.wait()
        answer = front.ask(request(0))
        assert await first.next() == request(0)
        first.token(AnswerToken("0", 7))
        assert await answer.more() == ([7], None)
        front.opened.clear()
        second = await BrokerClient.connected(bridge.port, bridge.key, "b")  # the first one hangs, and is not closed
        second.ready(
            PlacementState(PlacementLayout("alone", (1,), (3,)), EngineLimits(10, 100, 50), {0: "no heartbeat"})
        )
        await front.opened.wait()
        assert await first.next() is None
        assert front.placed is not None
        assert (front.placed.layout.ranks, front.placed.lost) == ((1,), {0: "no heartbeat"})
        assert await second.next() == Request("0", (1, 2, 3, 7), 3)
        assert await said_to(bridge, HelloMessage(bridge.key, "a"), FailureMessage("b is lost")) == b""
        assert (answer.outcome, front.why_not) == (None, "")  # the first one learned late that it has been replaced
        second.token(AnswerToken("0", 8))
        assert await answer.more() == ([8], None)
        await second.close()
        while not front.is_waiting:
            await asyncio.sleep(0.001)
        assert (answer.outcome, front.why_not) == (None, "")
        bridge.lose()
        assert await answer.more() == ([], AnswerEnd("0", "error", "b is lost: its process ended"))
        await first.close()
        bridge.close()

    asyncio.run(run())


def test_a_node_that_fails_leaves_the_answers_to_the_others_and_a_run_that_fails_ends_them() -> None:
    front, loss = RequestBroker(), PeerLost(1, "n1", "crashed by the fault plan")

    async def take(node: object, desk: object) -> None:
        raise loss

    async def life() -> PendingAnswer:
        front.open()
        answer = front.ask(request(0))
        with pytest.raises(PeerLost):  # of a node without the desk
            await node_program._paced(cast("Transport", None), cast("ServingPart", SimpleNamespace(take=take)), front)
        assert (front.why_not, front.open_requests) == ("", 1)
        return answer

    answers = []
    with pytest.raises(PeerLost), node_program.in_this_process(front, "key"):
        answers.append(asyncio.run(life()))
        assert answers[0].outcome is None
        raise loss
    assert front.why_not == str(loss)
    assert answers[0].outcome == AnswerEnd("0", "error", str(loss))
