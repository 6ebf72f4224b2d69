"""`simcluster bench transport` times real nodes and gloo by turns, and says what is wrong with a request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from simcluster.cli.app import app
from simcluster.errors import RunError, UsageError
from simcluster.lab.bench.transport import bench_transport, rows_of
from simcluster.lab.bench.transport.measure import Companion
from simcluster.runs.record import Metric, NodeRecord


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    arguments = ["--nodes", "2", "--sizes", "4 B,10kB", "--repeats", "3", "--json"]
    done = CliRunner().invoke(app, ["bench", "transport", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_every_operation_of_every_size_has_both_times(rows: list[dict[str, Any]]) -> None:
    asked = [(row["nodes"], row["bytes"], row["operation"]) for row in rows]
    assert asked == [(2, size, name) for size in (4, 10_000) for name in ("all_reduce", "push_pull")]
    assert all(row["ours_s"] > 0 and row["gloo_s"] > 0 for row in rows)


@pytest.mark.slow
def test_the_ratio_is_that_of_the_medians(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert row["ratio"] == pytest.approx(row["ours_s"] / row["gloo_s"])
        assert row["ours_cpu_s"] > 0
        assert row["gloo_cpu_s"] > 0
        assert row["cpu_ratio"] == pytest.approx(row["ours_cpu_s"] / row["gloo_cpu_s"])


def test_an_operation_takes_as_long_as_its_slowest_rank_and_the_processors_of_all() -> None:
    # Repetitions of ours take max(1, 4) = 4, max(5, 2) = 5, max(9, 9) = 9 s, of gloo's 2 each: medians 5 and 2.
    # Of processors they take 1 + 4 = 5, 5 + 2 = 7 and 9 + 9 = 18 s, gloo's 2 + 2 = 4, 2 + 1 = 3 and 1 + 2 = 3: 7 and 3.
    times_s = {"ours": ((1.0, 5.0, 9.0), (4.0, 2.0, 9.0)), "gloo": ((2.0, 2.0, 1.0), (2.0, 1.0, 2.0))}
    records = [NodeRecord(rank, f"node{rank}") for rank in range(2)]
    for name in ("all_reduce", "push_pull"):
        for whose, by_rank in times_s.items():
            for record, repeats in zip(records, by_rank, strict=True):
                for of in (whose, f"{whose}_cpu"):
                    record.metrics += [
                        Metric(0.0, step, record.name, f"{name}:{of}:8", took) for step, took in enumerate(repeats)
                    ]
    row = rows_of(2, records)[0]
    assert (row["ours_s"], row["gloo_s"], row["ratio"]) == (5.0, 2.0, 2.5)
    assert (row["ours_cpu_s"], row["gloo_cpu_s"], row["cpu_ratio"]) == (7.0, 3.0, 7 / 3)


def test_all_that_is_wrong_with_a_request_is_said_at_once() -> None:
    with pytest.raises(UsageError) as refused:
        bench_transport("1,x", "10,3B,2GB,1MB,0 B", 0)
    assert [problem.key for problem in refused.value.problems] == ["--nodes", *["--sizes"] * 4, "--repeats"]
    message = str(refused.value)
    for part in ("'1,x'", "'10' without a unit", "'3B'", "'2GB'", "'0 B'", "2 to 16", "4 B to 1000 MB", "1 to 1000"):
        assert part in message


def test_a_companion_that_has_ended_is_an_error_and_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcluster.lab.bench.transport.measure.PROGRAM", "json.tool")  # reads no such line
    with pytest.raises(RunError, match="ended with exit code"), Companion(0, 2) as gloo:
        gloo.ask(port=None)
