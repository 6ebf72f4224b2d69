"""The ledgers equal an independent count, of cases that are rare. The swarm counts those that it draws."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.core.algorithms.counting import counted
from tools.outcomes.cases import experiment

STEPS = 6

STAR = {"generator": "star", "device": "raspberry-pi-4", "bandwidth": "1 Mbps", "latency": "100 us"}
BOWL = {"name": "quadratic", "batch_size": 4}


@cache
def lasts_s(algorithm: str) -> float:
    return float(counted(small(algorithm)).summary["elapsed_s"])


def small(algorithm: str) -> dict[str, Any]:
    return experiment(algorithm, {"steps": STEPS})


def run(algorithm: dict[str, Any], stop: dict[str, Any], *faults: dict[str, Any], **keys: Any) -> dict[str, int]:
    found = counted(
        {
            "topology": {**STAR, "workers": 3},
            "workload": BOWL,
            "algorithm": algorithm,
            "stop": stop,
            "faults": [*faults],
        }
        | keys
    )
    assert not list(found.wrong())
    samples: dict[str, int] = found.summary["samples"]
    return samples


def test_pushes_under_way_when_the_clock_stops_are_lost() -> None:
    """k_sync with K = 1 of three: one gradient of four samples was applied by then, each rank has drawn one batch."""
    whole_s = float(counted(clocked(1.0)).summary["elapsed_s"])
    found = counted(clocked(0.5 * whole_s))
    assert found.applied == found.summary["samples"]["used"] < found.drawn


def clocked(time_s: float) -> dict[str, Any]:
    stop = {"steps": 2, "time": f"{time_s:.9f} s"}
    return {"topology": {**STAR, "workers": 3}, "workload": BOWL, "algorithm": {"name": "k_sync", "k": 1}, "stop": stop}


def test_a_gradient_that_a_restarted_worker_pushes_again_before_the_barrier_ends_is_used_once() -> None:
    """n2 takes 50 times as long, so n1 pushes step 1, restarts and pushes it again while the server waits for n2."""
    keys = small("sync_ps")
    step_s = lasts_s("sync_ps") / STEPS
    keys["topology"]["nodes"]["n2"]["straggler"] = {"factor": 50}
    keys["faults"] = [{"kind": "restart", "node": "n1", "at": f"{2 * step_s:.9f} s", "after": f"{0.1 * step_s:.9f} s"}]
    found = counted(keys)
    # 4 ranks, 6 steps, 8 samples a batch; the batch of n1 that it pushed twice is drawn twice.
    assert (found.drawn, found.applied) == (25 * 8, 24 * 8)
    assert not list(found.wrong())


def test_one_that_restarts_before_it_has_begun_loses_nothing() -> None:
    restart = {"kind": "restart", "node": "n2", "at": "0 s", "after": "200 ns"}
    assert run({"name": "k_sync"}, {"steps": 1}, restart) == {"used": 12, "lost": 0, "repeated": 0}


@pytest.mark.slow
def test_one_that_joins_when_its_server_has_ended_trains_for_no_one() -> None:
    """It takes five steps of its own before it asks for weights; they are lost, all five."""
    algorithm, stop = {"name": "edp", "pull_interval": 5}, {"steps": 5}
    alone = {"topology": {**STAR, "workers": 3}, "workload": BOWL, "algorithm": algorithm, "stop": stop}
    late = {"kind": "join", "node": "n2", "at": "1 s"}
    whole_s = float(counted({**alone, "faults": [late]}).summary["elapsed_s"])
    # The server's end takes 200 us to arrive: the other worker has not ended.
    samples = run(algorithm, stop, {**late, "at": f"{whole_s - 1e-4:.9f} s"})
    assert samples == {"used": 2 * 5 * 4, "lost": 5 * 4, "repeated": 0}


def test_one_that_joins_when_all_others_have_ended_does_not_train() -> None:
    samples = run({"name": "edp", "pull_interval": 5}, {"steps": 5}, {"kind": "join", "node": "n2", "at": "1 s"})
    assert samples == {"used": 2 * 5 * 4, "lost": 0, "repeated": 0}


def test_a_rank_that_was_let_by_in_a_round_has_not_trained_in_it() -> None:
    """One of two ranks trains in a round. Rank 0 dies: whichever rounds it was in, a round has four samples, not eight,
    and those of the steps that rank 1 makes alone, all of them.
    """
    two = {**STAR, "workers": 2}
    algorithm = {"name": "local_sgd", "interval": 1, "participation": 0.5}
    samples = run(algorithm, {"steps": 6}, {"kind": "crash", "node": "n0", "at": "10 ms"}, topology=two)
    assert samples["used"] == 6 * 4
