"""The pages with sizes alone: bytes between nodes, what the desk is told, and the choice of replicas."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import pytest

from simcluster.lm.engine.engine import Engine
from simcluster.lm.engine.generate import generate
from simcluster.lm.engine.generate_tensor import generate_tensor
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.request_source import Cancel
from simcluster.lm.engine.scheduler import Scheduler
from simcluster.lm.engine.serve_replicas import serve_replicas
from simcluster.lm.engine.sharded import TimedShard
from simcluster.lm.engine.stage import UNKNOWN, TimedStage
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.plan.times import exchanged_bytes
from simcluster.lm.request import Request
from simcluster.payload import Sendable, as_payload
from simcluster.transport import Transport
from tests.lm.engine.counting import Counting, Desk
from tests.lm.serving.timed import SHAPE
from tests.support import clusters

LIMITS = EngineLimits(1000, 1000, 512)


def sent(body: Any, size: int) -> Counter[str]:
    """Return the bytes of tensors that *size* nodes sent, each of which ran *body*."""
    counts = Counter[str]()

    async def node_body(node: Transport) -> None:
        await body(Counting(node, counts))

    clusters.run(clusters.star(size), *[node_body] * size)
    return counts


async def sharded(node: Transport, shape: ModelShape, n: int, desk: Desk, limits: EngineLimits) -> None:
    shard = TimedShard(shape, node.rank, n) if node.rank < n else None
    engine = Engine(Scheduler(limits), *desk) if node.rank == 0 else None
    await generate_tensor(node, shard, range(n), engine)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_tensor_parallel_ranks_send_exactly_the_bytes_of_the_formula_for_each_token(n: int) -> None:
    desk = Desk([Request("0", (0,), 5)])
    counts = sent(partial(sharded, shape=SHAPE, n=n, desk=desk, limits=LIMITS), n + 1)  # the last takes no part
    assert desk.tokens == {"0": [UNKNOWN] * 5}
    # 2 (n - 1) x 2 sums x 6 layers x 64 numbers of 4 bytes.
    assert counts["attention"] + counts["feed"] == 5 * exchanged_bytes(SHAPE, n) == 5 * 2 * (n - 1) * 2 * 6 * 64 * 4
    # The logits of 512 tokens, except the first rank's; and the number of each token to the other ranks.
    assert counts["logits"] == 5 * 512 * 4 * (n - 1) // n
    assert counts["batch"] == 5 * 4 * (n - 1)


async def staged(node: Transport, cuts: tuple[int, ...], desk: Desk, limits: EngineLimits = LIMITS) -> None:
    stages = len(cuts) - 1
    stage = TimedStage(SHAPE, *cuts[node.rank : node.rank + 2]) if node.rank < stages else None
    engine = Engine(Scheduler(limits), *desk) if node.rank == 0 else None
    await generate(node, stage, range(stages), engine)


def test_stages_send_the_numbers_of_the_stream_and_four_bytes_per_token_back() -> None:
    desk = Desk([Request("0", (0,) * 7, 5)])
    counts = sent(partial(staged, cuts=(0, 1, 4, 6), desk=desk), 4)
    assert desk.ends == {"0": ("length", "")}
    assert counts == {"stream": 2 * (7 + 4) * 64 * 4, "tokens": 5 * 4}


def test_the_desk_is_told_of_every_end_once_and_of_the_load() -> None:
    orders = [Request("0", (0,) * 7, 3), Request("1", (), 3), Cancel("none"), Request("2", (0,), 900), Cancel("2")]
    desk = Desk(orders)
    sent(partial(staged, cuts=(0, 3, 6), desk=desk), 2)
    assert desk.ends == {"0": ("length", ""), "1": ("error", "the prompt has no token"), "2": ("cancelled", "")}
    last = desk.loads[-1]
    assert (last.running, last.waiting, last.cache_share, last.preemptions) == (0, 0, 0.0, 0)
    assert [node.name for node in last.nodes] == ["n0", "n1"]
    assert all(node.sent_bytes > 0 for node in last.nodes)


class HearsLate(Counting):
    """Real nodes may hear that a message has left after its receiver has ended."""

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        await super().send(to, tag, content)
        if not as_payload(content).tensors:
            await asyncio.sleep(1.0)


def test_a_last_stage_that_ends_before_the_first_hears_that_its_end_has_left_is_not_lost() -> None:
    desk = Desk([Request("0", (0,) * 7, 5)])

    async def body(node: Transport) -> None:
        await staged(HearsLate(node, Counter()), (0, 3, 6), desk)

    clusters.run(clusters.star(2), body, body)
    assert desk.ends == {"0": ("length", "")}


async def replicated(
    node: Transport, desk: Desk, policy: Any, ran: dict[int, int], prefill: int = 0, limits: EngineLimits = LIMITS
) -> None:
    scheduler = Scheduler(limits)
    given = tuple(desk) if node.rank == 0 else None
    await serve_replicas(node, TimedStage(SHAPE, 0, 6), range(3), scheduler, given, policy, prefill=prefill)
    ran[node.rank] = next(scheduler._slots)


def shared(count: int, most: int, **more: Any) -> tuple[Desk, list[int], Counter[str]]:
    """Answer *count* prompts of 16 tokens with *most* tokens, each once, by three replicas among four nodes.

    Return the desk, the sequences that each replica ran, and the bytes sent.
    """
    desk, ran = Desk([Request(str(i), (0,) * 16, most) for i in range(count)]), dict[int, int]()
    counts = sent(partial(replicated, desk=desk, ran=ran, **{"policy": "least_loaded"} | more), 4)
    assert {name: len(tokens) for name, tokens in desk.tokens.items()} == {str(i): most for i in range(count)}
    assert set(desk.ends.values()) == {("length", "")}
    return desk, [ran[rank] for rank in range(3)], counts


@pytest.mark.parametrize(("prefill", "sequences"), [(1, [5, 3, 2]), (2, [3, 2, 5])])
def test_a_prompts_keys_and_values_go_from_a_node_that_prefills_to_one_that_decodes(
    prefill: int, sequences: list[int]
) -> None:
    desk, ran, counts = shared(5, 4, prefill=prefill)
    assert ran == sequences
    assert desk.loads[-1].prefilled == 5 * 16
    # Keys and values of 6 layers, 4 heads of 8 numbers, 4 bytes each; and the ids of 16 tokens and of the first one.
    assert counts["cache"] == 5 * (2 * 6 * 4 * 8 * 4 * 16 + 17 * 4) == 5 * (SHAPE.cache_bytes(6, 16) + 17 * 4)


def test_a_node_that_decodes_prefills_what_it_has_no_room_for() -> None:
    # Two blocks of 16: one request of 16 and 4 tokens at a time. All come to the same node, and each ends once.
    desk, _, _ = shared(4, 4, prefill=2, limits=EngineLimits(2, 1000, 512))
    assert desk.loads[-1].prefilled > 4 * 16


@pytest.mark.parametrize("policy", ["least_loaded", "round_robin", "prefix_aware"])
def test_replicas_share_the_requests_and_answer_each_once(policy: str) -> None:
    desk, ran, _ = shared(7, 2, policy=policy)
    assert ran == [3, 2, 2]
    assert sorted(node.name for node in desk.loads[-1].nodes) == ["n0", "n1", "n2"]


def test_a_prompt_goes_to_the_replica_that_had_its_beginning() -> None:
    # Chunks of 512: the first and the third prompt have one in common, so the third follows the first.
    prompts = ((1,) * 600, (2,) * 600, (1,) * 700, (3,) * 600)
    desk, ran = Desk([Request(str(i), prompt, 2) for i, prompt in enumerate(prompts)]), dict[int, int]()
    sent(partial(replicated, desk=desk, policy="prefix_aware", ran=ran), 4)
    assert [ran[rank] for rank in range(3)] == [2, 1, 1]
    assert len(desk.ends) == 4


def test_a_cancelled_request_of_a_replica_ends_once_as_cancelled() -> None:
    desk = Desk([Request("0", (0,), 900), Request("1", (0,), 900), Cancel("1"), Cancel("0"), Cancel("9")])
    sent(partial(replicated, desk=desk, policy="round_robin", ran={}), 4)
    assert desk.ends == {"0": ("cancelled", ""), "1": ("cancelled", "")}
