"""`verify` holds the pages that serve a model to their laws, and finds pages that break them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import simcluster
from simcluster.errors import Deadlock, UsageError
from simcluster.lab.verify.served import page as pages
from simcluster.lm.serving.run import ServingResult

REAL = pages.answer_all


@pytest.mark.slow
@pytest.mark.parametrize("name", pages.PAGES)
def test_a_page_keeps_every_law(name: str) -> None:
    found = simcluster.verify(name, quick=True)
    assert found.ok, found.table()
    # The replicas' bytes and, in quick, the other backend are not claimed.
    assert [check.name for check in found.checks if check.verdict == "not claimed"] == [
        "simulator = sockets", *(["bytes = formula"] if name == "serve_replicas" else [])
    ]  # fmt: skip
    assert "where requests lost theirs 0 times" not in found["little cache"].reason


@pytest.mark.slow
def test_real_processes_are_checked_too() -> None:
    found = simcluster.verify("generate", nodes=[2], only=["simulator = sockets"])
    assert [(check.verdict, check.reason) for check in found.checks] == [
        ("holds", "N = 2: real processes give the simulator's tokens")
    ]


def other_token(found: ServingResult) -> ServingResult:
    last = found.answers["0"]
    return replace(found, answers={**found.answers, "0": replace(last, tokens=(*last.tokens[:-1], -5))})


def late(found: ServingResult) -> ServingResult:
    last = found.answers["0"]
    return replace(found, answers={"0": replace(last, times_s=(*last.times_s[:-1], last.times_s[-1] * (1 + 1e-8)))})


def told_twice(found: ServingResult) -> ServingResult:
    first = found.record.nodes[0]
    first.answers.append(next(row for row in first.answers if row.request == "3"))
    return found


def leaked(found: ServingResult) -> ServingResult:
    return replace(found, nodes=(replace(found.nodes[0], cache_bytes=found.nodes[0].cache_bytes + 4), *found.nodes[1:]))


def more_bytes(found: ServingResult) -> ServingResult:
    rows = found.record.nodes[0].metrics
    place = next(i for i, row in enumerate(rows) if row.name == pages.TENSOR_BYTES)
    rows[place] = rows[place]._replace(value=rows[place].value + 1)
    return found


def stuck(found: ServingResult) -> ServingResult:
    raise Deadlock("deadlock at 1 s", ["n0: recv"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "wrong", "reason"),
    [
        ("tokens = one process", other_token, "N = 2: other tokens than one process for request 0"),
        ("little cache", other_token, "N = 2: other tokens than one process for request 0"),
        (
            "guesses change no token",
            other_token,
            "N = 2, with .* guesses right: other tokens than one process for request 0",
        ),
        ("answered once", told_twice, "N = 2: request 3 of 16 tokens was told"),
        ("cache bytes", leaked, "N = 2: .* B of 66816 B"),
        ("time = closed form", late, "N = 2, token 10: .* by the closed form"),
        ("bytes = formula", more_bytes, "N = 2: 1,961 B, by the formula 1,960 B"),
        ("determinism", stuck, "N = 2 on sim: Deadlock: deadlock at 1 s"),
    ],
)
def test_a_page_that_breaks_a_law_fails_it(
    law: str, wrong: Callable[[ServingResult], ServingResult], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers(*given: Any, **options: Any) -> ServingResult:
        return wrong(REAL(*given, **options))

    monkeypatch.setattr(pages, "answer_all", answers)
    found = simcluster.verify("generate", nodes=[2], backend="sim", only=[law])
    assert [check.verdict for check in found.checks] == ["fails"]
    assert re.match(reason, found[law].reason), found[law].reason


def test_a_page_takes_no_workload_and_only_sizes_that_have_a_share_for_every_node(command: Any) -> None:
    with pytest.raises(UsageError, match="workload: found one, expected none for generate: its model is a small GPT"):
        simcluster.verify("generate", workload="quadratic")
    code, _, err = command("verify", "generate_tensor", "--nodes", "2,4")
    assert code == 2
    assert "--nodes: found [2, 4], expected some of [1, 2, 3, 6] for generate_tensor" in err
    with pytest.raises(UsageError, match=r"a check: .*time = closed form"):
        simcluster.verify("generate", only=["time"])
