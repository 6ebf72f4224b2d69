"""Gradient tracking: the exact optimum where ranks have different data, without a lost one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcluster.workloads import quadratic, sgd
from tests.core.algorithms.gossip.runs import SEED, run
from tests.support.levels import sample_of

DIFFERENT = quadratic(features=6, samples=48, batch_size=12, dtype="float64", noise=1.0)
"""On four ranks a batch is all that a rank has, so each has a quadratic of its own, without noise."""


def _optimum(samples: Any) -> Any:
    inputs, targets = DIFFERENT.train_samples.inputs.numpy()[samples], DIFFERENT.train_samples.targets.numpy()[samples]
    return np.linalg.lstsq(inputs, targets, rcond=None)[0].reshape(-1)


OPTIMUM = _optimum(np.arange(48))


# losses


@pytest.mark.slow
@pytest.mark.parametrize("overlay", sample_of(["ring", "complete"], 2))
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
@settings(max_examples=15, deadline=None)
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
