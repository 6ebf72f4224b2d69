"""What the server foretells is what the simulator takes."""

from __future__ import annotations

import pytest

from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.request import Request
from simcluster.lm.serving.predicted_latency import LatencyPredictor
from simcluster.lm.serving.run import answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.topology import Device
from tests.lm.serving.timed import SHAPE, topology
from tests.support import clusters

EQUAL = Device("d", 2e9, 1e9, work_overhead_s=30e-6, operator_overhead_s=2e-6)


@pytest.mark.parametrize(
    "layout",
    [
        PlacementLayout("alone", (1,), (6,)),
        PlacementLayout("pipeline", (0, 1, 2), (2, 1, 3)),
        PlacementLayout("tensor", (0, 1), (6, 6)),
        PlacementLayout("replicas", (1, 2), (6, 6)),
        PlacementLayout("replicas", (1, 2), (6, 6), prefill=1),
    ],
    ids=lambda layout: "one prefills" if layout.prefill else layout.kind,
)
@pytest.mark.parametrize("prompt", [20, 70])  # with chunks of 32: one, and two whole ones and a rest
def test_the_first_token_and_the_middle_one_take_what_was_foretold(layout: PlacementLayout, prompt: int) -> None:
    cluster = clusters.star(2, 1e7, 1e-3, n0=EQUAL, n1=EQUAL) if layout.kind == "tensor" else topology()
    batches = len(layout.ranks) if layout.kind == "pipeline" else 1  # as a server has it
    limits = EngineLimits(10_000, 10_000, SHAPE.vocabulary, chunk_tokens=32, batches=batches)
    setup = Setup("", SHAPE, "f32", "none", layout, limits, False, requests=(Request("0", (0,) * prompt, 11),))
    times_s = answer_all(setup, cluster).answers["0"].times_s
    foretold = LatencyPredictor(setup, cluster)(prompt, 11)
    assert foretold is not None
    # Under tensor parallelism, part of the way of a further chunk's tokens is hidden: at most 1 ms each way, per chunk.
    hidden_s = 2e-3 * 2 if layout.kind == "tensor" and prompt > 32 else 0.0
    assert times_s[0] == pytest.approx(foretold.ttft_s, rel=1e-9, abs=hidden_s + 1e-9 * foretold.ttft_s)
    # Token 1 has *prompt* tokens before it, token 6 five more: the middle of eleven.
    assert times_s[6] - times_s[5] == pytest.approx(1 / foretold.tokens_per_s, rel=1e-9)
