"""Gradient tracking: the exact optimum where ranks have different data, without a lost one, too; twice the bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simcluster.errors import PeerLost
from simcluster.lab.verify.claims.gossip import gradient_tracking as reference
from simcluster.workloads import quadratic, sgd
from tests.core.algorithms.gossip.runs import INSTANT, SEED, WORKLOAD, run
from tests.core.workloads.costs.test_timing_only import both, same_time_and_messages
from tests.support.clusters import star, with_nodes

DIFFERENT = quadratic(features=6, samples=48, batch_size=12, dtype="float64", noise=1.0)
"""On four ranks a batch is all that a rank has, so each has a quadratic of its own, without noise."""


def _optimum(samples: Any) -> Any:
    inputs, targets = DIFFERENT.train_samples.inputs.numpy()[samples], DIFFERENT.train_samples.targets.numpy()[samples]
    return np.linalg.lstsq(inputs, targets, rcond=None)[0].reshape(-1)


OPTIMUM = _optimum(np.arange(48))
DEFAULTS: dict[str, Any] = {"overlay": "ring", "consensus_every": 0, "output": "local"}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("settings", [{}, {"overlay": "one_peer_exponential"}, {"output": "mean"}], ids=str)
def test_every_rank_ends_where_w_times_all_models_and_estimates_do(settings: dict[str, Any], size: int) -> None:
    ran = run("gradient_tracking", size, **settings)
    expected = reference(WORKLOAD, size, SEED, 12, {**DEFAULTS, **settings})
    for replica, weights in zip(ran.replicas, expected, strict=True):
        torch.testing.assert_close(replica.parameters, list(weights), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
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


# losses


@pytest.mark.slow
@pytest.mark.parametrize("overlay", ["ring", "complete"])
def test_those_that_live_end_in_the_optimum_of_their_own_data(overlay: str) -> None:
    workload = replace(DIFFERENT, optimizer=sgd(0.1))
    faults = ("kind: crash, node: n2, at: 1 ms",)
    ran = run("gradient_tracking", 4, workload=workload, overlay=overlay, steps=400, faults=faults, fails=True)
    assert [isinstance(result, BaseException) for result in ran.results] == [False, False, True, False]
    assert 1 < ran.records[2].steps < 100, "it had put something into the others' estimates"
    shards = workload.shards(4, SEED)
    living = _optimum(np.concatenate([shards[rank] for rank in (0, 1, 3)]))
    assert np.abs(living - OPTIMUM).max() > 1e-3, "another optimum"
    assert np.abs(ran.weights[[0, 1, 3]] - living).max() <= 1e-9


class Last:
    """Keeps what an algorithm would, in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def due(self, step: int) -> bool:
        return True

    async def keep(self, step: int, batches: int, places: Any, loose: bool, kept: Mapping[str, Any]) -> None:
        self.kept = dict(kept)


AT_US = st.integers(1, 3000)
"""60 steps of six ranks take 3.1 ms."""


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    overlay=st.sampled_from(["ring", "complete", "line"]),
    crashes=st.dictionaries(st.integers(0, 5), AT_US, max_size=2),
    cuts=st.dictionaries(st.integers(0, 5), AT_US, max_size=2),
)
def test_the_mean_of_the_estimates_stays_that_of_the_gradients_of_those_that_live(
    overlay: str, crashes: dict[int, int], cuts: dict[int, int]
) -> None:
    faults = [f"kind: crash, node: n{rank}, at: {at_us} us" for rank, at_us in crashes.items()]
    faults += [f"kind: cut, link: n{rank}-sw, at: {at_us} us" for rank, at_us in cuts.items()]
    keepers = [Last() for _ in range(6)]
    ran = run("gradient_tracking", 6, overlay=overlay, steps=60, faults=faults, fails=True, keepers=keepers)
    kept = {rank: keepers[rank].kept for rank in range(6) if not isinstance(ran.results[rank], BaseException)}
    sight = networkx.Graph((a, b) for a in kept for b in kept[a]["flows"])
    for part in networkx.connected_components(sight):
        if part <= kept.keys():  # nobody in it died behind its last message, of which the others never heard
            difference = sum(kept[rank]["y"][0] - kept[rank]["old"][0] for rank in part)
            assert abs(difference).max() <= 1e-9


@pytest.mark.parametrize("settings", [{"overlay": "one_peer_exponential"}, {"output": "mean"}], ids=str)
def test_where_all_are_needed_a_loss_ends_it(settings: dict[str, Any]) -> None:
    faults = ("kind: crash, node: n4, at: 1 ms",)
    ran = run("gradient_tracking", 5, faults=faults, fails=True, steps=100, **settings)
    assert all(isinstance(result, (PeerLost, ExceptionGroup)) for result in ran.results[:4])


@pytest.mark.parametrize("settings", [{}, {"consensus_every": 3, "output": "mean"}], ids=str)
def test_timing_only_takes_the_time_of_real_numerics(settings: dict[str, Any], tmp_path: Path) -> None:
    same_time_and_messages(*both({"name": "gradient_tracking", **settings}, tmp_path))
