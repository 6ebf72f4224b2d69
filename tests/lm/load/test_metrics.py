"""Latencies, rates and goodput of a load, by hand."""

from __future__ import annotations

import json

import pytest

from simcluster.lm.load.answers import AnsweredRequest, Objectives
from simcluster.lm.load.metrics import Distribution, distribution, figures
from simcluster.lm.load.table import lines

LONG = AnsweredRequest(1.0, (1.5, 1.7, 2.1), 2.1, 10, 3)
SHORT = AnsweredRequest(2.0, (2.25,), 2.25, 5, 1)
LOST = AnsweredRequest(2.5, (), 5.0, 7, 0, "timeout")
ANSWERS = (LONG, SHORT, LOST)


def test_the_latencies_of_an_answer_are_those_of_the_formulas() -> None:
    assert LONG.ttft_s == pytest.approx(0.5)
    # (1.1 - 0.5) / 2
    assert LONG.tpot_s == pytest.approx(0.3)
    assert LONG.itl_s == pytest.approx([0.2, 0.4])
    assert LONG.e2el_s == pytest.approx(1.1)
    assert (SHORT.tpot_s, SHORT.itl_s) == (None, [])


def test_tokens_that_come_together_count_each_and_have_one_gap() -> None:
    # Two chunks, 5 tokens by the server's count: 0.8 s for the 4 after the first.
    answer = AnsweredRequest(0.0, (0.2, 1.0), 1.0, 3, 5)
    assert answer.tpot_s == pytest.approx(0.2)
    assert answer.itl_s == pytest.approx([0.8])


def test_percentiles_are_linear_and_gaps_are_pooled() -> None:
    # Of 0, 1, ..., 10: variance 10, and the p-th percentile is p / 10.
    found = distribution(range(11))
    assert found == Distribution(5.0, 5.0, pytest.approx(10**0.5), 9.0, pytest.approx(9.9))
    assert distribution([]) is None
    both = figures([LONG, AnsweredRequest(0.0, (1.0, 1.1), 1.1, 1, 2)])
    assert both.itl_s is not None
    # 0.2, 0.4 and 0.1
    assert both.itl_s.mean == pytest.approx(0.7 / 3)


def test_failed_requests_are_counted_apart() -> None:
    found = figures(
        [*ANSWERS, AnsweredRequest(3.0, (), 3.0, 1, 0, "http 429"), AnsweredRequest(3.0, (3.5,), 4.0, 1, 1, "timeout")]
    )
    assert (found.requests, found.completed, found.failed) == (5, 2, 3)
    assert found.errors == {"http 429": 1, "timeout": 2}
    assert found.ttft_s is not None
    assert found.ttft_s.mean == pytest.approx(0.375)
    assert (found.prompt_tokens, found.output_tokens) == (15, 4)


def test_rates_are_over_the_time_from_the_first_arrival_to_the_last_end() -> None:
    rates = figures(ANSWERS, Objectives(ttft_s=0.3)).to_dict()
    # From 1 s to 5 s; only the short one has its first token within 0.3 s.
    assert rates["duration_s"] == pytest.approx(4.0)
    assert rates["requests_per_s"] == pytest.approx(0.5)
    assert rates["output_tokens_per_s"] == pytest.approx(1.0)
    assert rates["total_tokens_per_s"] == pytest.approx(19 / 4)
    assert rates["goodput_per_s"] == pytest.approx(0.25)
    # 1.1 + 0.25 + 2.5 s in 4 s.
    assert rates["mean_in_system"] == pytest.approx(3.85 / 4)
    assert json.loads(json.dumps(rates)) == rates


@pytest.mark.parametrize(
    ("objectives", "good"),
    [
        (Objectives(), 2),
        (Objectives(tpot_s=0.29), 1),
        (Objectives(tpot_s=0.31), 2),
        (Objectives(e2el_s=1.0), 1),
        (Objectives(ttft_s=0.51, tpot_s=0.31, e2el_s=0.2), 0),
    ],
)
def test_a_good_request_meets_all_objectives(objectives: Objectives, good: int) -> None:
    assert figures(ANSWERS, objectives).good == good


def test_without_objectives_there_is_no_goodput_and_without_answers_no_latency() -> None:
    assert figures(ANSWERS).to_dict()["goodput_per_s"] is None
    nothing = figures([LOST]).to_dict()
    assert (nothing["ttft_s"], nothing["itl_s"], nothing["output_tokens_per_s"]) == (None, None, 0.0)
    assert figures([]).to_dict()["requests_per_s"] is None


def test_the_table_has_the_numbers_and_fits_eighty_columns() -> None:
    shown = list(lines(figures(ANSWERS, Objectives(ttft_s=0.3))))
    assert shown[0] == "3 requests in 4 s: 2 completed, 1 failed (1 timeout)"
    assert shown[2].split() == ["TTFT", "375", "ms", "375", "ms", "125", "ms", "475", "ms", "497.5", "ms"]
    assert shown[-3:-1] == [
        "per second: 0.5 requests, 1 output tokens, 4.75 tokens",
        "goodput: 0.25 requests per second that meet all objectives",
    ]
    assert max(map(len, shown)) <= 80
    assert list(lines(figures([LOST]))) == ["1 requests in 2.5 s: 0 completed, 1 failed (1 timeout)"]
