"""The promises of `simcluster.transport` as code: put any backend through `check_transport(run_bodies)`.

*run_bodies* takes a list of `async def body(node)`, runs body i as rank i of one cluster, and returns a list with each
body's result, or the exception it ended with. A body that raises `Crash` dies on the spot, without a goodbye: its
peers must see a PeerLost. Every peer stays in the cluster until its own body ends.

This file knows the interface only. It must not know a backend, and it uses no pytest, since users' own backends are
checked with it too. Tests of order use messages and events, never durations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import torch

from simcluster.errors import PeerLost
from simcluster.payload import pack, sizes_of
from simcluster.transport import ANY, FREE, Cost, Transport

Body: TypeAlias = Callable[[Transport], Awaitable[Any]]
RunBodies: TypeAlias = Callable[[Sequence[Body]], list[Any]]

A_MOMENT_S = 0.05
"""Long enough on a real loopback for what is under way to arrive; a simulated one does not care."""


class Crash(Exception):
    """Raised by a body to make its node die without a goodbye."""


def check_transport(run_bodies: RunBodies) -> list[str]:
    """Runs every check against *run_bodies*; returns their names. Raises AssertionError, naming check and promise."""
    for check in CHECKS:
        try:
            check(run_bodies)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
    return [check.__name__ for check in CHECKS]


def _run(run_bodies: RunBodies, *bodies: Body) -> list[Any]:
    """Runs *bodies* and lets the first unexpected exception out."""
    results = run_bodies(bodies)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, Crash):
            raise result
    return results


async def _nothing(node: Transport) -> None:
    await asyncio.sleep(0)


def _refuses(error: type[BaseException], result: Any, what: str) -> None:
    assert isinstance(result, error), f"{what} must raise {error.__name__}, got {result!r}"


# identity


def a_node_knows_rank_size_and_peers(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> tuple[int, int, list[int], str]:
        seen = (node.rank, node.size, list(node.peers), node.name)
        # Nobody leaves before everybody has looked.
        async with asyncio.TaskGroup() as group:
            for peer in seen[2]:
                group.create_task(node.send(peer, "looked", None))
                group.create_task(node.recv(peer, "looked"))
        return seen

    results = _run(run_bodies, body, body, body)
    assert [result[:3] for result in results] == [(0, 3, [1, 2]), (1, 3, [0, 2]), (2, 3, [0, 1])]
    assert len({result[3] for result in results}) == 3, "node names must differ"


def generators_belong_to_one_node(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> tuple[float, float]:
        await asyncio.sleep(0)
        return float(node.rng.numpy.random()), float(torch.rand((), generator=node.rng.torch))

    first, second = _run(run_bodies, body, body), _run(run_bodies, body, body)
    assert first == second, "the same seed must give the same draws"
    assert first[0] != first[1], "two nodes must not share a stream"


# payloads


def a_payload_arrives_as_it_was_sent(run_bodies: RunBodies) -> None:
    tensors = [
        torch.arange(6, dtype=torch.float32).reshape(2, 3),
        torch.tensor(3.5, dtype=torch.float64),
        torch.zeros(0, 4),
        torch.tensor([True, False]),
        torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        torch.arange(10).reshape(2, 5).t(),
        torch.tensor([-128, 127], dtype=torch.int8),
    ]
    values = {"step": -3, "loss": 0.1, "text": "grüße", "flag": True, "none": None}

    async def sender(node: Transport) -> None:
        await node.send(1, "all", pack(*tensors, **values))
        await node.send(1, "scalar", 7)
        await node.send(1, "nothing", None)

    async def receiver(node: Transport) -> None:
        message = await node.recv(0, "all")
        assert (message.source, message.tag) == (0, "all")
        assert dict(message.payload.values) == values, message.payload.values
        assert len(message.tensors) == len(tensors)
        for got, sent in zip(message.tensors, tensors, strict=True):
            assert got.dtype == sent.dtype
            assert got.shape == sent.shape
            assert torch.equal(got, sent)
        header, body = sizes_of("all", pack(*tensors, **values))
        assert message.size_bytes == header + body, "size_bytes must be what sizes_of says"
        assert (await node.recv(0, "scalar"))["value"] == 7
        assert (await node.recv(0, "nothing")).tensors == ()

    _run(run_bodies, sender, receiver)


def a_tensor_changed_after_send_arrives_unchanged(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        weights = torch.ones(200_000)
        sending = asyncio.create_task(node.send(1, "w", weights))
        await asyncio.sleep(0)
        weights.fill_(-1.0)
        await sending
        weights.fill_(-2.0)

    async def receiver(node: Transport) -> None:
        await asyncio.sleep(A_MOMENT_S)
        message = await node.recv(0, "w")
        assert torch.equal(message.tensor, torch.ones(200_000)), "send must snapshot"
        message.tensor.add_(1.0)  # and what arrives belongs to the receiver

    _run(run_bodies, sender, receiver)


def what_cannot_travel_is_refused(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> None:
        other = 1 - node.rank
        for content in (object(), [object()], {"a": [1]}, torch.zeros(2, dtype=torch.complex64)):
            try:
                await node.send(other, "bad", content)  # type: ignore[arg-type]
            except TypeError:
                continue
            raise AssertionError(f"send took {content!r}")
        for rank in (node.rank, node.size, -1):
            for attempt in (node.send(rank, "t", None), node.recv(rank, "t")):
                try:
                    await attempt
                except ValueError:
                    continue
                raise AssertionError(f"rank {rank} was accepted")
        # The stream is still whole.
        await node.send(other, "good", None)
        await node.recv(other, "good")

    _run(run_bodies, body, body)


# order and matching


def one_tag_arrives_in_order(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(node.send(1, "t", pack(torch.full((1 + 997 * (number % 3),), float(number)))))

    async def receiver(node: Transport) -> None:
        got = [int((await node.recv(0, "t")).tensor[0]) for _ in range(50)]
        assert got == list(range(50)), f"out of order: {got}"

    _run(run_bodies, sender, receiver)


def a_later_tag_can_be_received_first(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        await node.send(1, "first", 1)
        await node.send(1, "second", 2)

    async def receiver(node: Transport) -> None:
        assert (await node.recv(0, "second"))["value"] == 2
        assert (await node.recv(0, "first"))["value"] == 1

    _run(run_bodies, sender, receiver)


def any_takes_the_earliest_arrival(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        for number, tag in enumerate(["b", "a", "b", "c"]):
            await node.send(1, tag, number)
        await node.send(1, "end", None)

    async def receiver(node: Transport) -> None:
        await node.recv(0, "end")  # one ordered stream: the other four are here
        assert [(await node.recv(ANY, "b"))["value"], (await node.recv(0, ANY))["value"]] == [0, 1]
        assert [(await node.recv(ANY, ANY))["value"] for _ in range(2)] == [2, 3]

    _run(run_bodies, sender, receiver)


def receivers_are_served_in_the_order_they_called(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        await node.recv(1, "ready")
        for number in range(4):
            await node.send(1, "t", number)

    async def receiver(node: Transport) -> None:
        tasks = [asyncio.create_task(node.recv(ANY if i % 2 else 0, "t")) for i in range(4)]
        await asyncio.sleep(0)
        await node.send(0, "ready", None)
        got = [(await task)["value"] for task in tasks]
        assert got == [0, 1, 2, 3], f"first come, first served: {got}"

    _run(run_bodies, sender, receiver)


def a_large_tensor_delays_the_small_one_behind_it(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(node.send(1, "large", torch.zeros(2_000_000)))
            group.create_task(node.send(1, "small", None))

    async def receiver(node: Transport) -> None:
        assert [(await node.recv(0, ANY)).tag for _ in range(2)] == ["large", "small"]

    _run(run_bodies, sender, receiver)


def everyone_to_everyone_at_once_arrives_once(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> list[int]:
        async with asyncio.TaskGroup() as group:
            for peer in node.peers:
                for number in range(5):
                    group.create_task(node.send(peer, f"{number}", pack(torch.ones(10_000), origin=node.rank)))
            tasks = [group.create_task(node.recv()) for _ in range(5 * len(node.peers))]
        return sorted(task.result()["origin"] for task in tasks)

    results = _run(run_bodies, body, body, body, body)
    for rank, got in enumerate(results):
        assert got == sorted(5 * [peer for peer in range(4) if peer != rank]), f"rank {rank} got {got}"


# waiting


def every_verb_yields(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> None:
        other, turns = 1 - node.rank, 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        await node.send(other, "t", None)
        await node.send(other, "there", None)
        await node.recv(other, "there")
        counter = asyncio.create_task(count())
        await asyncio.sleep(0)
        for name, verb in {
            "recv of a message that is here": lambda: node.recv(other, "t"),
            "send": lambda: node.send(other, "u", None),
            "compute that is free": lambda: node.compute(lambda: None, cost=FREE),
        }.items():
            before = turns
            await verb()
            assert turns > before, f"{name} did not yield"
        counter.cancel()
        await node.recv(other, "u")

    _run(run_bodies, body, body)


def a_cancelled_recv_loses_no_message(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        await node.recv(1, "timed out")
        for number in range(20):
            await node.send(1, "t", number)

    async def receiver(node: Transport) -> None:
        try:
            async with asyncio.timeout(A_MOMENT_S):
                await node.recv(0, "t")
            raise AssertionError("nothing was sent yet")
        except TimeoutError:
            pass
        await node.send(0, "timed out", None)
        got: list[int] = []
        turns = 0
        while len(got) < 20:  # cancel receives at every point of their life
            task = asyncio.create_task(node.recv(0, "t"))
            for _ in range(turns % 4):
                await asyncio.sleep(0)
            turns += 1
            if turns % 5 == 0:
                await asyncio.sleep(A_MOMENT_S / 10)
            else:
                task.cancel()
            try:
                got.append((await task)["value"])
            except asyncio.CancelledError:
                continue
        assert got == list(range(20)), f"lost or reordered: {got}"

    _run(run_bodies, sender, receiver)


def a_cancelled_send_delivers_all_or_nothing(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        for turns in range(12):
            task = asyncio.create_task(node.send(1, "t", pack(torch.full((300_000,), float(turns)), turn=turns)))
            for _ in range(turns % 6):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await node.send(1, "t", pack(turn=-1))

    async def receiver(node: Transport) -> None:
        seen = []
        while (message := await node.recv(0, ANY))["turn"] >= 0:
            turn = message["turn"]
            assert torch.equal(message.tensor, torch.full((300_000,), float(turn))), "half a message"
            seen.append(turn)
        assert seen == sorted(set(seen)), f"repeated or reordered: {seen}"

    _run(run_bodies, sender, receiver)


def a_receiver_that_does_not_receive_pushes_back(run_bodies: RunBodies) -> None:
    # 64 messages of 4 MB are 256 MB: more than the 64 MiB inbox and any socket buffer together.
    async def sender(node: Transport) -> None:
        chunk, sent = torch.zeros(1_000_000), 0

        async def push() -> None:
            nonlocal sent
            for _ in range(64):
                await node.send(1, "t", chunk)
                sent += 1

        pushing = asyncio.create_task(push())
        before = -1
        while sent != before:  # until it stalls
            before = sent
            await asyncio.sleep(6 * A_MOMENT_S)
        assert not pushing.done(), "256 MB left although nobody received any of it"
        await node.send(2, "stalled", None)
        await pushing

    async def receiver(node: Transport) -> None:
        await node.recv(2, "stalled")
        for _ in range(64):
            await node.recv(0, "t")

    async def witness(node: Transport) -> None:
        await node.recv(0, "stalled")
        await node.send(1, "stalled", None)

    _run(run_bodies, sender, receiver, witness)


# compute


def compute_returns_and_raises_what_the_work_does(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> None:
        assert await node.compute(lambda a, b: a + b, 2, b=3, cost=Cost(10.0)) == 5
        try:
            await node.compute(lambda: 1 // 0, cost=Cost(10.0))
        except ZeroDivisionError:
            return
        raise AssertionError("compute swallowed an exception")

    _run(run_bodies, body)


def messages_are_answered_while_work_runs(run_bodies: RunBodies) -> None:
    def work() -> float:
        product = torch.eye(300)
        for _ in range(60):
            product = product @ product
        return float(product.sum())

    async def busy(node: Transport) -> None:
        async def answer() -> None:
            await node.recv(1, "question")
            await node.send(1, "answer", None)

        answering = asyncio.create_task(answer())
        computing = asyncio.create_task(node.compute(work, cost=Cost(1e12)))
        await node.send(1, "busy", None)
        await answering
        await node.send(1, "done", int(computing.done()))
        assert await computing == 300.0

    async def asker(node: Transport) -> None:
        await node.recv(0, "busy")
        await node.send(0, "question", None)
        await node.recv(0, "answer")
        await node.recv(0, "done")

    _run(run_bodies, busy, asker)


def a_device_does_one_piece_at_a_time_in_order(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> None:
        order: list[int] = []
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(node.compute(order.append, number, cost=Cost(1e6)))
        assert order == [0, 1, 2, 3, 4], order

    _run(run_bodies, body)


def work_that_waits_can_be_cancelled(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> None:
        ran: list[str] = []

        def slow() -> None:
            product = torch.eye(200)
            for _ in range(50):
                product = product @ product
            ran.append("first")

        first = asyncio.create_task(node.compute(slow, cost=Cost(1e9)))
        second = asyncio.create_task(node.compute(ran.append, "second", cost=Cost(1e9)))
        await asyncio.sleep(0)
        second.cancel()
        await first
        await asyncio.gather(second, return_exceptions=True)
        assert second.cancelled()
        assert await node.compute(lambda: 42, cost=Cost(1.0)) == 42
        assert ran == ["first"], f"cancelled work ran: {ran}"

    _run(run_bodies, body)


# loss


def a_crashed_peer_is_lost_to_whoever_waits(run_bodies: RunBodies) -> None:
    async def victim(node: Transport) -> None:
        await node.send(1, "last", 1)
        await node.recv(1, "go")
        raise Crash

    async def waiter(node: Transport) -> None:
        await node.send(2, "alive", None)
        tasks = [asyncio.create_task(node.recv(source, "never")) for source in (0, ANY)]
        elsewhere = asyncio.create_task(node.recv(2, "later"))
        await asyncio.sleep(0)
        await node.send(0, "go", None)
        for task in tasks:
            try:
                await task
            except PeerLost as lost:
                assert lost.rank == 0, f"the wrong rank is lost: {lost}"
            else:
                raise AssertionError("recv returned although the peer is gone")
        assert list(node.peers) == [2], f"peers: {list(node.peers)}"
        assert (await node.recv(0, "last"))["value"] == 1, "what had arrived must still be received"
        for attempt in (node.recv(0, "never"), node.send(0, "t", None)):
            try:
                await attempt
            except PeerLost as lost:
                assert lost.rank == 0
            else:
                raise AssertionError("a verb on a lost peer must raise PeerLost")
        # Whoever waits for somebody else goes on, and the loss is told to ANY only once.
        await node.send(2, "now", None)
        assert (await elsewhere)["value"] == 5
        assert (await node.recv(ANY, "more"))["value"] == 6

    async def bystander(node: Transport) -> None:
        await node.recv(1, "alive")
        await node.recv(1, "now")
        await node.send(1, "later", 5)
        await node.send(1, "more", 6)

    _run(run_bodies, victim, waiter, bystander)


def a_peer_that_ended_is_not_waited_for(run_bodies: RunBodies) -> None:
    async def waiter(node: Transport) -> None:
        assert (await node.recv(1, "only"))["value"] == 1
        try:
            await node.recv(1, "never")
        except PeerLost as lost:
            assert lost.rank == 1
        else:
            raise AssertionError("recv from a node that has ended must raise PeerLost")

    async def leaver(node: Transport) -> None:
        await node.send(0, "only", 1)

    _run(run_bodies, waiter, leaver)


def an_exception_of_a_body_is_its_own(run_bodies: RunBodies) -> None:
    async def fails(node: Transport) -> None:
        await asyncio.sleep(0)
        raise LookupError("mine")

    results = run_bodies([fails, _nothing])
    _refuses(LookupError, results[0], "the failing body's result")
    assert results[1] is None


CHECKS: list[Callable[[RunBodies], None]] = [
    a_node_knows_rank_size_and_peers,
    generators_belong_to_one_node,
    a_payload_arrives_as_it_was_sent,
    a_tensor_changed_after_send_arrives_unchanged,
    what_cannot_travel_is_refused,
    one_tag_arrives_in_order,
    a_later_tag_can_be_received_first,
    any_takes_the_earliest_arrival,
    receivers_are_served_in_the_order_they_called,
    a_large_tensor_delays_the_small_one_behind_it,
    everyone_to_everyone_at_once_arrives_once,
    every_verb_yields,
    a_cancelled_recv_loses_no_message,
    a_cancelled_send_delivers_all_or_nothing,
    a_receiver_that_does_not_receive_pushes_back,
    compute_returns_and_raises_what_the_work_does,
    messages_are_answered_while_work_runs,
    a_device_does_one_piece_at_a_time_in_order,
    work_that_waits_can_be_cancelled,
    a_crashed_peer_is_lost_to_whoever_waits,
    a_peer_that_ended_is_not_waited_for,
    an_exception_of_a_body_is_its_own,
]
