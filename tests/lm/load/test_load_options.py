"""A load as it is asked for: from numbers or a trace; all that is wrong at once."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from simcluster.errors import UsageError
from simcluster.lm.load.answers import Objectives
from simcluster.lm.load.load_options import LoadOptions, objectives_of

TRACE = "Timestamp,Request tokens,Response tokens\n" + "".join(f"{10 * n},{n + 1},5\n" for n in range(9))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_a_load_has_as_many_requests_and_lengths_as_asked_for() -> None:
    found = LoadOptions(4.0, 1000, prompt_tokens="7", output_tokens="uniform:2:3").offered()
    assert len(found) == 1000
    assert ({one.prompt_tokens for one in found}, {one.output_tokens for one in found}) == ({7}, {2, 3})
    # 1,000 exponential intervals of 0.25 s: 250 s with a standard error of 0.25 sqrt(1000) = 7.9 s; four of them.
    assert found[-1].arrival_s == pytest.approx(250, abs=32)


def test_a_trace_keeps_its_times_and_a_rate_scales_them(trace: Path) -> None:
    own = LoadOptions(None, trace=trace).offered()
    assert [one.arrival_s for one in own] == [10.0 * n for n in range(9)]
    # Four intervals in 40 s become four at 2 per second.
    scaled = LoadOptions(2.0, 5, trace=trace).offered()
    assert [one.arrival_s for one in scaled] == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0])
    assert [one.prompt_tokens for one in scaled] == [1, 2, 3, 4, 5]


def test_a_trace_has_its_own_lengths_and_a_rate_needs_times(trace: Path) -> None:
    with pytest.raises(UsageError) as error:
        LoadOptions(None, prompt_tokens="5", output_tokens="6", trace=trace).offered()
    assert [problem.key for problem in error.value.problems] == ["--prompt-tokens", "--output-tokens"]
    trace.write_text("Timestamp,Request tokens,Response tokens\n3,1,5\n3,1,5\n")
    with pytest.raises(UsageError, match="--rate: found 2, expected none: all 2 requests of the trace arrive at once"):
        LoadOptions(2.0, trace=trace).offered()


def test_what_was_asked_is_json_without_infinity(trace: Path) -> None:
    assert json.loads(json.dumps(LoadOptions(math.inf).to_dict(), allow_nan=False))["rate"] == "inf"
    found = LoadOptions(None, trace=trace).to_dict()
    assert (found["trace"], found["prompt_tokens"], found["rate"]) == (str(trace), None, None)


def test_everything_wrong_is_told_at_once(trace: Path) -> None:
    with pytest.raises(UsageError) as error:
        LoadOptions(None, 0, 0.0, "no", "-1", None, -1).offered()
    flags = [problem.key for problem in error.value.problems]
    assert flags == ["--rate", "--requests", "--burstiness", "--seed", "--prompt-tokens", "--output-tokens"]
    with pytest.raises(UsageError) as error:
        replace(LoadOptions(math.inf, burstiness=2.0), trace=trace.with_name("none.csv")).offered()
    assert [problem.key for problem in error.value.problems] == ["--rate", "--burstiness", "--trace"]
    for rate in (0.0, -1.0, math.nan):
        with pytest.raises(UsageError, match="--rate: found"):
            LoadOptions(rate).offered()


def test_objectives_are_read_and_refused() -> None:
    assert objectives_of("ttft:0.5, tpot:0.05") == Objectives(ttft_s=0.5, tpot_s=0.05)
    assert objectives_of("e2el:3") == Objectives(e2el_s=3.0)
    with pytest.raises(UsageError) as error:
        objectives_of("tfft:1,ttft:0,tpot:fast,e2el:1,e2el:2")
    said = [str(problem) for problem in error.value.problems]
    assert len(said) == 4
    assert "did you mean 'ttft'?" in said[0]
    assert "found 'ttft:0', expected ttft:SECONDS" in said[1]
    assert "each once" in said[3]
