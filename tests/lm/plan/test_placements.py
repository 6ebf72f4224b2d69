"""Placements: the laws that hold on any shelf, and refusals by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcluster.errors import UsageError
from simcluster.lm.plan.cluster_model_costs import ClusterModelCosts, evenly, fastest
from simcluster.lm.plan.placements import rank
from simcluster.lm.plan.plan import make_plan
from simcluster.lm.plan.search import EXACT, PipelineSearch
from simcluster.lm.plan.shape import PRESETS, with_weights
from simcluster.lm.plan.times import Lengths
from simcluster.topology import Device, Topology, load
from simcluster.topology.model.purchase import PossiblePurchase
from tests.lm.serving.timed import SHAPE
from tests.support import clusters

LENGTHS = Lengths(20, 10)
WHOLE = SHAPE.weights * SHAPE.weight_bytes
NORMS = (2 * SHAPE.layers + 1) * SHAPE.width * SHAPE.weight_bytes
CACHE = SHAPE.cache_bytes(SHAPE.layers, LENGTHS.most)

devices = st.builds(
    Device,
    st.just("d"),
    st.floats(1e7, 1e11),
    st.floats(1e7, 1e10),
    st.none() | st.integers(0, int(2 * WHOLE)),
    work_overhead_s=st.floats(0, 1e-3),
    operator_overhead_s=st.floats(0, 1e-5),
)
shelves = st.builds(
    lambda found, bandwidth_Bps, latency_s: clusters.star(
        len(found), bandwidth_Bps, latency_s, **{f"n{i}": device for i, device in enumerate(found)}
    ),
    st.lists(devices, min_size=1, max_size=4),
    st.floats(1e5, 1e9),
    st.floats(0, 1e-2),
)


def best_per_s(topology: Topology, requests: int = 1) -> float:
    return rank(ClusterModelCosts(topology, SHAPE, LENGTHS), requests).best_per_s


@settings(deadline=None)
@given(shelves, st.integers(1, 9))
def test_nothing_of_a_model_is_lost_and_nothing_exceeds_a_memory(topology: Topology, requests: int) -> None:
    ranking = rank(ClusterModelCosts(topology, SHAPE, LENGTHS), requests)
    table = SHAPE.vocabulary * SHAPE.width * SHAPE.weight_bytes
    for one in ranking.placements:
        assert not any(part.missing_bytes for part in one.parts)
        # Replicas hold the model once each; a tied table is at both ends of a pipeline, table and norms at every shard.
        copies = len(one.parts) if one.kind == "replicas" else 1
        extra = {"pipeline": table, "tensor": (len(one.parts) - 1) * (table + NORMS)}.get(one.kind, 0.0)
        assert sum(part.weights_bytes for part in one.parts) == pytest.approx(copies * WHOLE + extra)
        assert sum(part.cache_bytes for part in one.parts) == pytest.approx(requests * CACHE)
        assert sum(part.layers * part.share for part in one.parts) == pytest.approx(copies * SHAPE.layers)
        assert one.tokens_per_s > 0
    rates = [one.tokens_per_s for one in ranking.placements]
    assert rates == sorted(rates, reverse=True)


@settings(deadline=None)
@given(shelves, st.integers(1, 9))
def test_the_best_placement_is_no_slower_than_any_single_node(topology: Topology, requests: int) -> None:
    shelf = ClusterModelCosts(topology, SHAPE, LENGTHS)
    for name in topology.workers:
        alone = shelf.pace(name, requests).stage_s(SHAPE.layers, last=True)
        memory = shelf.topology.device(name).memory_bytes
        if memory is None or memory >= WHOLE + requests * CACHE:
            assert rank(shelf, requests).best_per_s >= requests / alone * (1 - 1e-12)


@pytest.mark.slow
@settings(deadline=None)
@given(shelves, st.floats(1, 100), st.integers(0, 3))
def test_faster_parts_never_slow_one_request_down(topology: Topology, factor: float, which: int) -> None:
    before = best_per_s(topology) * (1 - 1e-9)
    wider = clusters.with_links(topology, bandwidth_Bps=topology.links[0].bandwidth_Bps * factor)
    nearer = clusters.with_links(topology, latency_s=topology.links[0].latency_s / factor)
    name = topology.workers[which % len(topology.workers)]
    node = topology.nodes[name]
    assert node.device is not None
    for faster in (
        replace(node.device, memory_bandwidth_Bps=node.device.memory_bandwidth_Bps * factor),
        replace(node.device, flops_per_s=node.device.flops_per_s * factor),
        replace(node.device, memory_bytes=None),
    ):
        changed = replace(topology, nodes={**topology.nodes, name: replace(node, device=faster)})
        assert best_per_s(changed) >= before
    assert best_per_s(wider) >= before
    assert best_per_s(nearer) >= before


stages = st.lists(st.tuples(st.integers(1, 8), st.floats(0, 5), st.floats(0.1, 5)), min_size=1, max_size=4)


@given(stages, st.integers(1, 8))
def test_cuts_are_the_best_of_all(given_stages: list[tuple[int, float, float]], layers: int) -> None:
    rooms, fixed, each = map(list, zip(*given_stages, strict=True))
    cuts = [
        cut for cut in itertools.product(*(range(1, room + 1) for room in rooms)) if sum(cut) == layers
    ]  # fmt: skip
    if not cuts:
        return

    def times(cut: tuple[int, ...] | list[int]) -> list[float]:
        return [fixed[i] + n * each[i] for i, n in enumerate(cut)]

    for found in (fastest(layers, rooms, each), evenly(layers, rooms, fixed, each)):
        assert tuple(found) in cuts
    assert sum(times(fastest(layers, rooms, each))) == pytest.approx(min(sum(times(cut)) for cut in cuts))
    assert max(times(evenly(layers, rooms, fixed, each))) == pytest.approx(min(max(times(cut)) for cut in cuts))


def test_with_many_requests_in_flight_the_slowest_stage_decides() -> None:
    # Two equal nodes over a free network, each with half of 32 layers, the last also with the logits; 64 requests.
    device = Device("d", 1e18, 1e10)
    shelf = ClusterModelCosts(
        clusters.star(2, 1e15, 0.0, n0=device, n1=device), with_weights(PRESETS["8b"], "q4"), Lengths()
    )
    cut = shelf.cut(("n0", "n1"), 64)
    assert cut is not None
    together = math.ceil(64 / cut.groups)
    n0, n1 = cut.layers
    pace = shelf.pace("n0", together)
    slowest_s = max(pace.stage_s(n0, last=False), pace.stage_s(n1, last=True))
    assert cut.tokens_per_s == pytest.approx(64 / (cut.groups * slowest_s), rel=1e-9)
    assert n0 > n1


def test_a_refused_placement_says_what_is_missing() -> None:
    # Each node lacks 1000 bytes to hold the model and the cache of one request alone; without a link's cost, two do.
    small = Device("small", 1e9, 1e9, int(WHOLE + CACHE) - 1000)
    alone = rank(ClusterModelCosts(clusters.star(1, n0=small), SHAPE, LENGTHS), 1)
    assert (alone.placements, alone.best_per_s) == ((), 0.0)
    (refused,) = alone.refused
    assert (refused.kind, refused.where, refused.missing_bytes) == ("alone", "n0", 1000)
    both = rank(ClusterModelCosts(clusters.star(2, n0=small, n1=small), SHAPE, LENGTHS), 1)
    assert {one.kind for one in both.placements} == {"pipeline", "tensor"}
    assert [one.where for one in both.refused] == ["n0", "n1"]
    # Four nodes with a quarter each, less 10 bytes. Tensor parallelism needs all embeddings and norms on each of them.
    table = SHAPE.vocabulary * SHAPE.width * SHAPE.weight_bytes
    less = Device("less", 1e9, 1e9, int((WHOLE + CACHE) / 4) - 10)
    four = rank(ClusterModelCosts(clusters.star(4, n0=less, n1=less, n2=less, n3=less), SHAPE, LENGTHS), 1)
    missing = {(one.kind, one.where): one.missing_bytes for one in four.refused}
    assert missing["tensor", "4 nodes, on n0"] == pytest.approx(10 + 3 / 4 * (table + NORMS), abs=1)
    assert four.placements == ()
    # The whole shelf: layers that find no room, each with its cache.
    each = SHAPE.layer_bytes + SHAPE.cache_bytes(1, LENGTHS.most)
    assert less.memory_bytes is not None
    rooms = sum(max(0, int((less.memory_bytes - end) / each)) for end in (table, 0, 0, table))
    assert missing["pipeline", "4 nodes"] == pytest.approx((SHAPE.layers - rooms) * each)


def test_a_model_with_three_kv_heads_is_shared_by_three_nodes_alone() -> None:
    ranking = rank(ClusterModelCosts(load("smolcluster"), PRESETS["smollm2"], Lengths()), 1)
    assert [len(one.parts) for one in ranking.placements if one.kind == "tensor"] == [3]
    (refused,) = (one for one in ranking.refused if one.kind == "tensor")
    assert (refused.where, refused.why) == ("2, 4, 5 nodes", "3 KV heads cannot be shared evenly")


def test_a_weak_node_is_left_out_with_the_speed_that_it_would_cost() -> None:
    whole = {f"nodes.mini{number}.usable_memory": "16 GB" for number in (1, 2, 3)}
    ranking = rank(
        ClusterModelCosts(load("smolcluster", overrides=whole), with_weights(PRESETS["70b"], "q4"), Lengths()), 1
    )
    assert {part.node for part in ranking.placements[0].parts} == {"mini1", "mini2", "mini3"}
    rates = dict(ranking.left_out)
    assert set(rates) == {"pi4", "pi5"}
    for rate in rates.values():
        assert rate is not None
        assert 0 < rate < ranking.best_per_s


def test_a_search_among_many_nodes_finds_the_best_of_all_short_orders() -> None:
    # Eight nodes: n7 is fast and too small for the whole model; the others are equal, so more than two add only hops.
    slow = Device("slow", 1e12, 1e9, int(2 * WHOLE))
    quick = replace(slow, memory_bandwidth_Bps=1e11, memory_bytes=int(0.7 * WHOLE))
    names = {f"n{i}": slow for i in range(7)} | {"n7": quick}
    topology = clusters.star(8, 1e9, 1e-7, **names)
    assert len(topology.workers) > EXACT
    shelf = ClusterModelCosts(topology, SHAPE, LENGTHS)
    orders = (order for k in (1, 2, 3) for order in itertools.permutations(topology.workers, k))
    least_s = min(cut.token_s for order in orders if (cut := shelf.cut(order, 1)) is not None)
    assert min(cut.token_s for cut in PipelineSearch(shelf, 1).cuts) == least_s


def test_an_offer_is_judged_by_the_plan_with_it() -> None:
    slow = Device("slow", 1e12, 1e9, int(WHOLE / 3))
    shelf = clusters.star(1, n0=slow)
    roomy = clusters.star(1, n0=replace(slow, memory_bytes=None))
    offers = [PossiblePurchase("roomy", "n0", 100.0, roomy), PossiblePurchase("same", "n0", 1.0, shelf)]
    plan = make_plan(shelf, SHAPE, LENGTHS, 4, offers)
    assert [ranking.requests for ranking in plan.rankings] == [1, 4]
    for which, requests in enumerate((1, 4)):
        (worth,) = plan.best_purchases(which)
        assert worth.part == "roomy"
        assert worth.tokens_per_s[which] == best_per_s(roomy, requests)


def test_what_no_plan_can_be_for_is_refused_at_once() -> None:
    with pytest.raises(UsageError) as error:
        make_plan(clusters.star(1), SHAPE, Lengths(0, 10**7), 0)
    assert len(error.value.problems) == 3
