"""Runs over sockets without short cuts, or with some: the same weights, and records that replay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import simcluster
from simcluster.lab.replays.run import replay
from simcluster.testing import CHECKS, RunBodies
from tests.lab.replays.__main__ import experiment
from tests.support.socket_cluster import run_bodies

WIDE = {"name": "mnist_mlp", "hidden": 200}
"""Of 600 kB: the chunks of three ranks are landed, and travel in shared memory."""


def trained(algorithm: str, choice: bool | str, out: Path) -> simcluster.Run:
    plan = experiment(algorithm, 3) | {"workload": WIDE}
    return simcluster.run(plan, backend="sockets", out=out, report=False, options={"shortcuts": choice})


@pytest.mark.slow
def test_a_run_without_short_cuts_has_the_same_weights(tmp_path: Path) -> None:
    runs = [trained("all_reduce_dp", choice, tmp_path / str(choice)) for choice in (True, "memory", False)]
    assert len({run.summary["weights_sha256"] for run in runs}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["memory", False])
def test_a_run_without_short_cuts_is_replayed(tmp_path: Path, choice: bool | str) -> None:
    assert replay(trained("zero", choice, tmp_path / "run"), report=False).weights


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_promise_holds_without_short_cuts(check: Callable[[RunBodies], None]) -> None:
    check(partial(run_bodies, shortcuts=False))
