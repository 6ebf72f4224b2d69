"""Intervals: narrow near the published rows, wide far from them, with a sentence on what no row has."""

from __future__ import annotations

import pytest

from simcluster.lm.plan.engines import DEFAULT, ENGINES
from simcluster.lm.plan.intervals import FACTORS, KINDS, SOURCE, rate_interval, source_of, ttft_factors
from simcluster.lm.plan.plan import make_plan
from simcluster.lm.plan.shape import PRESETS, with_weights
from simcluster.lm.plan.times import Lengths
from simcluster.topology import load

LLAMA_CPP, OWN = ENGINES["llama.cpp"], ENGINES[DEFAULT]


def test_an_interval_is_wider_the_farther_a_prediction_is_from_the_rows() -> None:
    near = rate_interval("pipeline", 4, 1, LLAMA_CPP)
    beyond = rate_interval("pipeline", 5, 1, LLAMA_CPP)
    unmeasured = rate_interval("pipeline", 5, 1, OWN)
    assert (near.low, near.high) == FACTORS["pipeline"]["near"]
    assert near.around(100) == (100 * near.low, 100 * near.high)
    assert unmeasured.low < beyond.low < near.low < 1 < near.high <= beyond.high <= unmeasured.high
    assert (near.is_beyond, beyond.is_beyond, beyond.most) == (False, True, 4)


def test_several_requests_at_once_have_no_row() -> None:
    one, many = (rate_interval("alone", 1, requests, LLAMA_CPP) for requests in (1, 8))
    assert (many.low, many.high) == FACTORS["alone"]["unmeasured"]
    assert many.low < one.low


def test_a_placement_of_two_kinds_has_the_wider_interval() -> None:
    hybrid = rate_interval("hybrid", 3, 1, OWN)
    assert hybrid.low == min(FACTORS[kind]["unmeasured"][0] for kind in KINDS["hybrid"])
    assert ttft_factors("hybrid") == pytest.approx((1 / hybrid.high, 1 / hybrid.low))
    assert rate_interval("replicas", 1, 1, OWN) == rate_interval("alone", 1, 1, OWN)


@pytest.mark.parametrize(
    ("engine", "requests", "nodes", "said"),
    [
        (LLAMA_CPP, 1, 4, ""),
        (LLAMA_CPP, 1, 9, "; pipeline not measured beyond 4 nodes"),
        (OWN, 8, 9, "; none of this engine; one request each; pipeline not measured beyond 4 nodes"),
    ],
)
def test_a_sentence_says_what_no_row_has(engine: object, requests: int, nodes: int, said: str) -> None:
    found = [("pipeline", rate_interval("pipeline", nodes, requests, engine))] * 2  # type: ignore[arg-type]
    # 0.40 to 1.22 times the rate is 0.82 to 2.5 times the time.
    ttft = "; none has a TTFT, which is 0.82 to 2.5 times these by device and links"
    assert source_of(found, requests, engine) == SOURCE + ttft + said  # type: ignore[arg-type]


def test_json_has_an_interval_for_every_placement_and_marks_more_nodes_than_were_measured() -> None:
    plan = make_plan(load("star-8-gigabit"), with_weights(PRESETS["8b"], "q4"), Lengths(8, 8), 4, engine="llama.cpp")
    for ranking in plan.to_dict()["rankings"]:
        assert ranking["interval_source"].startswith(SOURCE)
        for one in ranking["placements"]:
            first, last = one["ttft_s_interval"]
            assert (first, last) == pytest.approx([end * one["ttft_s"] for end in ttft_factors(one["kind"])])
            assert first < one["ttft_s"] < last
            low, high = one["tokens_per_s_interval"]
            assert 0 < low < one["tokens_per_s"] < high
            is_beyond = one["kind"] == "pipeline" and len(one["nodes"]) > 4
            assert one["not_measured_beyond_nodes"] == (4 if is_beyond else None)
