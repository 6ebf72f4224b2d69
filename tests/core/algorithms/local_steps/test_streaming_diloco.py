"""Streaming DiLoCo: against the naive timetable, DiLoCo, which is a special case, and what overlap is for."""

from __future__ import annotations

import pytest

from simcluster.lab.verify.claims.diloco import streaming_diloco as reference
from simcluster.topology import Device
from tests.core.algorithms.trained import (
    SEED,
    WORK,
    WORKLOAD,
    close,
    train,
)
from tests.support.clusters import star

DEFAULTS = {
    "interval": 20, "fragments": 4, "overlap": 1, "blend": 0.5, "outer_learning_rate": 0.7, "outer_momentum": 0.9
}  # fmt: skip


def test_there_may_be_more_fragments_than_weights_or_turns() -> None:
    settings = {"interval": 2, "fragments": 8}
    close(train("streaming_diloco", 3, **settings).weights, reference(WORKLOAD, 3, SEED, 12, DEFAULTS | settings))


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
