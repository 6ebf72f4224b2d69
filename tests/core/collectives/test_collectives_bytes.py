"""What each schedule sends: the textbook's bytes exactly, by every rank, with values and without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from simcluster.collectives import SCHEDULES, operations
from simcluster.lab.bench.collective import ByteCounter
from simcluster.transport import Transport
from tests.core.collectives.schedules import ceil_lg, floor_lg
from tests.core.collectives.test_collectives_sums import options
from tests.support.clusters import now, run, star

SIZES = [1, 2, 3, 4, 5, 7, 8]


def inputs(op: str, p: int, rank: int, device: str, length: int) -> tuple[Any, ...]:
    whole = torch.arange(length, dtype=torch.int32).to(device)
    parts: list[Tensor] = list(whole.tensor_split(p))
    given: dict[str, tuple[Any, ...]] = {
        "broadcast": ([whole], "t"),
        "scatter": (parts, "t"),
        "gather": (parts[rank], "t"),
        "reduce": (whole, "t"),
        "all_gather": (parts[rank], "t"),
        "reduce_scatter": (whole, "t"),
        "all_reduce": (whole, "t"),
        "all_to_all": (parts, "t"),
        "barrier": ("t",),
    }
    return given[op]


def sent(op: str, schedule: str, p: int, device: str = "meta", length: int = 840 * 8) -> list[tuple[int, int, float]]:
    """(bytes of tensors, messages, time) of each rank; the vector has 4 *length* bytes."""

    async def body(node: Any) -> tuple[int, int, float]:
        counted = ByteCounter(node)
        view: Transport = counted  # type: ignore[assignment]
        more = options(op, schedule, p)
        await getattr(operations, op)(view, *inputs(op, p, node.rank, device, length), schedule=schedule, **more)
        return counted.payload_B, node.recorder.record.messages_sent, now()

    found: list[tuple[int, int, float]] = run(star(p), *[body] * p)
    return found


def total(op: str, schedule: str, p: int) -> float:
    """Bytes of all ranks together, in units of M."""
    return sum(payload for payload, _, _ in sent(op, schedule, p)) / (4 * 840 * 8)


@pytest.mark.parametrize("p", SIZES)
def test_all_ranks_together_send_what_the_formulas_say(p: int) -> None:
    f, c, rest = floor_lg(p), ceil_lg(p), p - 2 ** floor_lg(p)
    everyone = (p - 1) / p * p  # (p-1)/p M by every rank
    expected = {
        ("broadcast", "naive"): p - 1,
        ("broadcast", "chain"): p - 1,
        ("broadcast", "binomial"): p - 1,
        ("broadcast", "hierarchical"): p - 1,
        ("reduce", "naive"): p - 1,
        ("reduce", "binomial"): p - 1,
        ("reduce", "hierarchical"): p - 1,
        ("scatter", "naive"): (p - 1) / p,
        ("gather", "naive"): (p - 1) / p,
        ("all_gather", "naive"): everyone,
        ("all_gather", "ring"): everyone,
        ("all_gather", "bruck"): everyone,
        ("reduce_scatter", "naive"): everyone,
        ("reduce_scatter", "ring"): everyone,
        ("reduce_scatter", "pairwise"): everyone,
        ("reduce_scatter", "bruck"): everyone,
        ("all_to_all", "naive"): everyone,
        ("all_to_all", "pairwise"): everyone,
        ("all_to_all", "bruck"): sum(distance.bit_count() for distance in range(p)),
        ("all_reduce", "naive"): p * (p - 1),
        ("all_reduce", "direct"): 2 * everyone,
        ("all_reduce", "ring"): 2 * everyone,
        ("all_reduce", "hierarchical"): 2 * everyone,
        ("all_reduce", "bandwidth_aware"): 2 * everyone,
        ("all_reduce", "binomial"): 2 * (p - 1),
        ("all_reduce", "recursive_doubling"): f * 2**f + 2 * rest,
        ("all_reduce", "halving_doubling"): 2 * (2**f - 1) + 2 * rest,
    }
    for (op, schedule), units in expected.items():
        # What the vector's parts and sites cut unevenly is still sent whole: only sums of parts are looked at.
        assert total(op, schedule, p) == pytest.approx(units, rel=3e-3), (op, schedule)
    if not rest:
        assert total("all_gather", "recursive_doubling", p) == everyone
        assert total("reduce_scatter", "halving_doubling", p) == everyone
        assert total("scatter", "binomial", p) == total("gather", "binomial", p) == c / 2
        assert total("broadcast", "ring", p) == c / 2 + everyone


@pytest.mark.parametrize("p", [2, 4, 8])
def test_every_rank_alone_sends_the_textbooks_bytes_and_messages(p: int) -> None:
    size, lg = 4 * 840 * 8, floor_lg(p)
    each = {
        ("all_reduce", "ring"): (2 * (p - 1) * size // p, 2 * (p - 1)),
        ("all_reduce", "halving_doubling"): (2 * (p - 1) * size // p, 2 * lg),
        ("all_reduce", "recursive_doubling"): (lg * size, lg),
        ("all_gather", "bruck"): ((p - 1) * size // p, lg),
        ("reduce_scatter", "halving_doubling"): ((p - 1) * size // p, lg),
        ("all_to_all", "bruck"): (lg * size // 2, lg),
        ("barrier", "bruck"): (0, lg),
    }
    for (op, schedule), expected in each.items():
        assert {found[:2] for found in sent(op, schedule, p)} == {expected}, (op, schedule)


@pytest.mark.parametrize("op", sorted(SCHEDULES))
@pytest.mark.parametrize("p", [3, 4])
def test_without_values_every_schedule_sends_the_same_and_takes_the_same_time(op: str, p: int) -> None:
    for schedule in SCHEDULES[op]:
        for length in (0, 2, 101):
            without, real = (sent(op, schedule, p, device, length) for device in ("meta", "cpu"))
            assert without == real, (schedule, length)
