"""Gradient tracking: the exact optimum where ranks have different data; twice the bytes; no ranks to spare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simcluster.errors import PeerLost
from simcluster.verify.claims.gradient_tracking import reference
from simcluster.workloads import quadratic, sgd
from tests.clusters import star, with_nodes
from tests.gossip import INSTANT, SEED, WORKLOAD, run
from tests.test_timing_only import both, same_time_and_messages

DIFFERENT = quadratic(features=6, samples=48, batch_size=12, dtype="float64", noise=1.0)
"""On four ranks a batch is all that a rank has, so each has a quadratic of its own, without noise."""


def _optimum() -> Any:
    inputs, targets = DIFFERENT.train_samples.inputs.numpy(), DIFFERENT.train_samples.targets.numpy()
    return np.linalg.lstsq(inputs, targets, rcond=None)[0].reshape(-1)


OPTIMUM = _optimum()
DEFAULTS: dict[str, Any] = {"overlay": "ring", "consensus_every": 0, "output": "local"}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("settings", [{}, {"overlay": "one_peer_exponential"}, {"output": "mean"}], ids=str)
def test_every_rank_ends_where_w_times_all_models_and_estimates_do(settings: dict[str, Any], size: int) -> None:
    ran = run("gradient_tracking", size, **settings)
    expected = reference(WORKLOAD, size, SEED, 12, {**DEFAULTS, **settings})
    for replica, weights in zip(ran.replicas, expected, strict=True):
        torch.testing.assert_close(replica.parameters, list(weights), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("overlay", ["ring", "star"])
def test_a_constant_step_ends_in_the_optimum_of_all_data_on_every_rank(overlay: str) -> None:
    # Every shard of iid is disjoint, and the mean of the four quadratics is the one of all data.
    workload = replace(DIFFERENT, optimizer=sgd(0.1))
    tracked = run("gradient_tracking", 4, workload=workload, overlay=overlay, steps=300).weights
    gossip = run("d_psgd", 4, workload=workload, overlay=overlay, steps=300).weights
    assert np.abs(tracked - OPTIMUM).max() <= 1e-9
    assert np.abs(gossip - OPTIMUM).max() > 1e-3, "D-PSGD stays beside it, however long"


def test_a_round_takes_twice_the_bytes_of_d_psgd() -> None:
    topology = with_nodes(star(4, bandwidth_Bps=1e6, latency_s=1e-3), device=INSTANT)
    ran = run("gradient_tracking", topology, steps=10)
    assert ran.end_s == pytest.approx(10 * (2e-3 + 2 * 2 * 48 / 1e6), rel=1e-9)  # two neighbours, x and y of 6 float64


def test_a_lost_rank_ends_it() -> None:
    ran = run("gradient_tracking", 5, faults=("kind: crash, node: n4, at: 1 ms",), fails=True, steps=100)
    assert all(isinstance(result, (PeerLost, ExceptionGroup)) for result in ran.results[:4])


@pytest.mark.parametrize("settings", [{}, {"consensus_every": 3, "output": "mean"}], ids=str)
def test_timing_only_takes_the_time_of_real_numerics(settings: dict[str, Any], tmp_path: Path) -> None:
    same_time_and_messages(*both({"name": "gradient_tracking", **settings}, tmp_path))
