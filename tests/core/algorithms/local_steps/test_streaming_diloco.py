"""Streaming DiLoCo: against the naive timetable, DiLoCo, which is a special case, and what overlap is for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from simcluster.lab.verify.claims.diloco import streaming_diloco as reference
from simcluster.topology import Device
from tests.core.algorithms.trained import (
    EVEN,
    SEED,
    UNEVEN,
    WORK,
    WORKLOAD,
    changes_something,
    close,
    lost_somebody,
    takes_the_same_time_without_values,
    train,
)
from tests.support.clusters import star

DEFAULTS = {
    "interval": 20, "fragments": 4, "overlap": 1, "blend": 0.5, "outer_learning_rate": 0.7, "outer_momentum": 0.9
}  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "settings",
    [
        {"interval": 5},
        {"interval": 4, "overlap": 0},
        {"interval": 4, "overlap": 3, "fragments": 2, "blend": 0.25},
        {"interval": 3, "overlap": 9},  # as long as a round, and no longer
        {"interval": 2, "fragments": 8},  # more than there are weights, or turns
        {},
    ],
    ids=str,
)
def test_it_is_the_naive_timetable(settings: dict[str, Any], size: int) -> None:
    run = train("streaming_diloco", size, **settings)
    close(run.weights, reference(WORKLOAD, size, SEED, 12, {**DEFAULTS, **settings}))
    assert all(torch.equal(vector, run.vectors[0]) for vector in run.vectors), "all end with the same bits"


@pytest.mark.parametrize("interval", [1, 5, 6])
def test_one_fragment_without_overlap_is_diloco_to_the_bit(interval: int) -> None:
    streaming = train("streaming_diloco", 3, interval=interval, fragments=1, overlap=0, blend=0.0)
    whole = train("diloco", 3, interval=interval)
    assert all(torch.equal(a, b) for a, b in zip(streaming.vectors, whole.vectors, strict=True))


def test_fragments_take_turns_so_a_peak_of_traffic_is_one_of_them() -> None:
    run = train("streaming_diloco", 2, interval=6, fragments=3, overlap=0)
    spans = [span for span in run.records[0].spans if span.kind == "send" and "scatter" in span.tag]
    turns = [tuple(span.tag.removeprefix("fragment").split("/")[:2]) for span in spans]
    # Fragment p of 3 begins where step + 2 p is a multiple of 6; at the last step, 12, all end together.
    assert turns == [(p, str(step)) for p, step in [("2", 2), ("1", 4), ("0", 6), ("2", 8), ("1", 10)]] + [
        (p, "12") for p in "012"
    ]


def test_on_a_slow_network_overlap_hides_what_travels() -> None:
    # A round trip of 8 ms; a step of two pieces of work takes 2 ms.
    devices = {f"n{rank}": Device("even", **WORK) for rank in range(2)}
    far = star(2, latency_s=2e-3, **devices)
    waiting, hidden = (
        train("streaming_diloco", far, interval=6, fragments=1, overlap=tau, steps=24).elapsed_s for tau in (0, 5)
    )
    # 4 rounds of a ring over two, 2 latencies of 4 ms each: all are waited for, or only the last, at the end.
    assert waiting - hidden == pytest.approx(3 * 8e-3, abs=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"interval": 3},
        {"fragments": 2},
        {"overlap": 3},
        {"blend": 0.0},
        {"outer_learning_rate": 0.5},
        {"outer_momentum": 0.5},
        {"schedule": "naive"},
        {"compression": "fp16"},
    ],
    ids=str,
)
def test_every_setting_changes_something(settings: dict[str, Any]) -> None:
    changes_something("streaming_diloco", settings, {"interval": 4}, EVEN)


@pytest.mark.parametrize(
    "settings", [{}, {"interval": 4, "overlap": 3}, {"interval": 5, "compression": "int8"}], ids=str
)
def test_without_values_it_takes_the_same_time(settings: dict[str, Any]) -> None:
    takes_the_same_time_without_values("streaming_diloco", UNEVEN, **settings)


def test_it_ends_with_the_rank_that_is_lost() -> None:
    run = train("streaming_diloco", EVEN, faults=["kind: crash, node: n2, at: 9 ms"], interval=4)
    assert all(lost_somebody(result) for result in run.results[:2])
