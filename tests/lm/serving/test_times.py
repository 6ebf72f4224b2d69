"""The simulator's times equal the plan's closed forms."""

from __future__ import annotations

from itertools import pairwise

import pytest

from simcluster.lm.plan.cluster_model_costs import ClusterModelCosts
from simcluster.lm.plan.placements import rank
from simcluster.lm.plan.shape import PRESETS, with_weights
from simcluster.lm.plan.times import (
    TOKEN_BYTES,
    Lengths,
    all_reduce_s,
    cycle_s,
    gathered_s,
    hop_s,
    pace,
    pipeline_s,
    tensor_s,
    told_s,
)
from simcluster.lm.request import Request
from simcluster.lm.serving.placement import layout_of, limits_of
from simcluster.lm.serving.run import answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.topology import load
from tests.lm.serving import timed
from tests.lm.serving.timed import SHAPE
from tests.support import clusters

NAMES = ("n0", "n1", "n2")
PROMPT, OUTPUT = 20, 10


def closed_forms(ranks: tuple[int, ...], layers: tuple[int, ...]) -> list[float]:
    """Return the seconds of each token of one request: the prompt's, then those of every decoded one."""
    cluster, last = timed.topology(), len(ranks) - 1
    names = [NAMES[rank] for rank in ranks]
    forms = []
    for which in range(OUTPUT):
        tokens, context = (PROMPT, 0) if which == 0 else (1, PROMPT + which - 1)
        stages_s = [
            pace(cluster.nodes[name].device, SHAPE, 1, tokens, context).stage_s(layers[place], place == last)
            for place, name in enumerate(names)
        ]
        hops_s = [hop_s(cluster, a, b, SHAPE.hidden_bytes(tokens)) for a, b in pairwise(names)]
        forms.append(pipeline_s(stages_s, hops_s, hop_s(cluster, names[-1], names[0], TOKEN_BYTES)))
    return forms


@pytest.mark.parametrize(
    ("ranks", "layers"), [((1,), (6,)), ((0, 1), (4, 2)), ((2, 0), (1, 5)), ((1, 0, 2), (1, 2, 3))]
)
def test_one_request_takes_the_time_of_the_closed_form(ranks: tuple[int, ...], layers: tuple[int, ...]) -> None:
    found = timed.run(PlacementLayout("pipeline", ranks, layers), [Request("0", (0,) * PROMPT, OUTPUT)])
    times_s = found.answers["0"].times_s
    expected_s = closed_forms(ranks, layers)
    assert times_s[0] == pytest.approx(expected_s[0], rel=1e-9)
    steps_s = [b - a for a, b in pairwise(times_s)]
    assert steps_s == pytest.approx(expected_s[1:], rel=1e-9)


def test_the_plan_foretells_the_first_token_and_the_middle_one() -> None:
    """For a whole shape at the plan's own lengths; the number of a token in the middle has the plan's context."""
    cluster, lengths = load("smolcluster"), Lengths(512, 128)
    for model in ("7b", "8b"):
        shape = with_weights(PRESETS[model], "q4")
        best = next(
            one for one in rank(ClusterModelCosts(cluster, shape, lengths), 1).placements if one.kind == "pipeline"
        )
        layout = layout_of("pipeline", cluster, shape, lengths)
        limits = limits_of(layout, cluster, shape, 10_000)
        request = Request("0", (0,) * lengths.prompt, lengths.output)
        found = answer_all(Setup("", shape, "f32", "none", layout, limits, False, requests=(request,)), cluster)
        times_s = found.answers["0"].times_s
        assert times_s[0] == pytest.approx(best.ttft_s, rel=1e-9)
        # After the token of the prompt, decoding token i has i others before: 512 + 64 for the 65th.
        assert times_s[65] - times_s[64] == pytest.approx(best.token_s, rel=1e-9)
        assert [use.weight_bytes for use in found.nodes] == pytest.approx([part.weights_bytes for part in best.parts])


def test_many_requests_keep_the_slowest_stage_busy() -> None:
    """Six requests in three groups of two. Once all decode, each group's token comes after a cycle of the closed form:
    the slowest stage three times, since it takes longer than the others and the hops.
    """
    ranks, layers, output = (0, 1, 2), (1, 4, 1), 60
    layout = PlacementLayout("pipeline", ranks, layers)
    requests = [Request(str(i), (0,), output) for i in range(6)]
    cluster = timed.topology(latency_s=10e-6)
    found = timed.run(layout, requests, cluster, batches=3)

    def cycle_at(context: int) -> float:
        stages_s = [
            pace(cluster.nodes[NAMES[rank]].device, SHAPE, 2, 1, context).stage_s(layers[place], place == 2)
            for place, rank in enumerate(ranks)
        ]
        hops_s = [hop_s(cluster, a, b, SHAPE.hidden_bytes(2)) for a, b in pairwise(NAMES)]
        back_s = hop_s(cluster, "n2", "n0", 2 * TOKEN_BYTES)
        return cycle_s(stages_s, hops_s, back_s, 3)

    times_s = found.answers["0"].times_s
    for which in range(20, output - 10):
        # A cycle has pieces of the slowest stage at two contexts, one token apart.
        assert cycle_at(which) * (1 - 1e-9) <= times_s[which + 1] - times_s[which] <= cycle_at(which + 2) * (1 + 1e-9)
    assert found.nodes[1].busy_s > 0.95 * times_s[-1]


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 4])
def test_tensor_parallelism_takes_the_time_of_the_closed_form(n: int) -> None:
    devices = {f"n{i}": timed.DEVICES["n0"] for i in range(n)}
    cluster = clusters.star(n, 1e7, 1e-4, **devices)
    layout = PlacementLayout("tensor", tuple(range(n)), (6,) * n)
    times_s = timed.run(layout, [Request("0", (0,) * PROMPT, OUTPUT)], cluster).answers["0"].times_s
    names = cluster.workers
    logits_s = gathered_s(cluster, names, SHAPE.logits_bytes(1, 1 / n))
    for which, took_s in enumerate([times_s[0], *(b - a for a, b in pairwise(times_s))]):
        tokens, context = (PROMPT, 0) if which == 0 else (1, PROMPT + which - 1)
        paces = [pace(devices[name], SHAPE, 1, tokens, context, 1 / n) for name in names]
        ends_s = told_s(cluster, names, TOKEN_BYTES * tokens) + logits_s
        reduce_s = all_reduce_s(cluster, names, SHAPE.hidden_bytes(tokens))
        assert took_s == pytest.approx(tensor_s(SHAPE, paces, reduce_s, ends_s), rel=1e-9)
