"""Engines: what their terms do to devices, hops and all-reduces, and what they refuse."""

from __future__ import annotations

import pytest

from simcluster.errors import UsageError
from simcluster.lm.cli.options import ENGINE_NAMES
from simcluster.lm.formats import FORMATS
from simcluster.lm.plan.cluster_model_costs import ClusterModelCosts
from simcluster.lm.plan.engines import DEFAULT, DOT_PRODUCT, ENGINES, EngineTerms, terms_of
from simcluster.lm.plan.placements import rank
from simcluster.lm.plan.plan import make_plan
from simcluster.lm.plan.shape import PRESETS, with_weights
from simcluster.lm.plan.times import Lengths
from simcluster.topology import Device, load, loads
from tests.support import clusters

EIGHT = with_weights(PRESETS["8b"], "q4")
LENGTHS = Lengths(8, 16)
FAST = Device("fast", 1e15, 100e9)


def test_the_default_engine_changes_nothing_but_the_processor() -> None:
    cluster = load("smolcluster")
    assert ENGINES[DEFAULT].topology(cluster) is cluster
    assert ENGINES[DEFAULT].formats == tuple(FORMATS)
    assert ENGINES[DEFAULT].overhead_s(8, 4096) == 0.0


def test_an_engine_reaches_its_share_of_the_memory_bandwidth_of_each_part() -> None:
    cluster = load("smolcluster")
    found = ENGINES["llama.cpp"].topology(cluster)
    # The M4's GPU: 103 GB/s, of which Metal reaches 0.9, and 137 us for the 18 operators of a layer.
    mac = found.device("mini1")
    assert mac.memory_bandwidth_Bps == pytest.approx(0.9 * 103e9)
    assert (18 * mac.operator_overhead_s, mac.work_overhead_s) == (pytest.approx(137e-6), 0.0)
    assert found.device("mini2") == mac
    pi5, pi4 = found.device("pi5"), found.device("pi4")
    assert (pi5.memory_bandwidth_Bps, pi5.operator_overhead_s) == (pytest.approx(1.02 * 10e9), 0.0)
    assert pi5.flops_per_s == cluster.device("pi5").flops_per_s  # all threads
    assert pi4.memory_bandwidth_Bps == pytest.approx(1.02 * DOT_PRODUCT * 5.5e9)


def test_an_engine_without_accelerators_takes_the_cpu_of_a_mac() -> None:
    found = ENGINES["distributed-llama"].topology(load("smolcluster")).device("mini1")
    assert found.flops_per_s == 1.38e12


def test_an_engine_for_macs_names_all_nodes_that_it_cannot_use() -> None:
    with pytest.raises(UsageError) as error:
        make_plan(load("smolcluster"), EIGHT, LENGTHS, engine="mlx")
    assert [problem.key for problem in error.value.problems] == ["nodes.pi5.compute", "nodes.pi4.compute"]
    assert "found cpu, expected mps" in str(error.value)
    macs = loads("nodes: {a: {device: mac-mini-m4, compute: auto}, b: {device: mac-mini-m4, compute: mps}}\n"
                 "links: [{between: [a, b], type: thunderbolt-4}]\n")  # fmt: skip
    placements = make_plan(macs, EIGHT, LENGTHS, engine="mlx").rankings[0].placements
    assert {one.kind for one in placements} == {"alone", "pipeline"}


def test_every_hop_and_every_all_reduce_has_the_engines_overhead() -> None:
    cluster = clusters.star(8, 1e15, 0.0, **{f"n{i}": FAST for i in range(8)})
    bare = EngineTerms(("q4",), ("alone", "pipeline", "tensor"), {"cpu": 1.0})
    slow = EngineTerms(("q4",), bare.kinds, {"cpu": 1.0}, hop_s=0.01, reduce_s=1e-3, incast_s=1e-6)
    found = [
        {
            (one.kind, len(one.parts)): one.token_s
            for one in rank(ClusterModelCosts(cluster, EIGHT, LENGTHS, engine=terms), 1).placements
        }
        for terms in (bare, slow)
    ]
    more_s = {key: found[1][key] - found[0][key] for key in found[0]}
    assert more_s["alone", 1] == 0.0
    # Two hops and the way back. 64 all-reduces of 1 ms; over 8 nodes, each has 7 senders of 4,096 numbers besides.
    assert more_s["pipeline", 3] == pytest.approx(0.03)
    assert more_s["tensor", 4] == pytest.approx(0.064)
    assert more_s["tensor", 8] == pytest.approx(64 * (1e-3 + 7 * 4096e-6))


@pytest.mark.parametrize(
    ("engine", "missing"), [("llama.cpp", {"tensor", "hybrid"}), ("distributed-llama", {"pipeline", "hybrid"})]
)
def test_a_plan_has_only_placements_that_the_engine_has(engine: str, missing: set[str]) -> None:
    plan = make_plan(load("star-8-gigabit"), EIGHT, LENGTHS, 8, engine=engine)
    kinds = {one.kind for ranking in plan.rankings for one in ranking.placements}
    assert kinds <= set(ENGINES[engine].kinds)
    assert not kinds & missing
    assert "alone" in kinds
    assert plan.to_dict()["engine"] == engine


def test_several_pis_are_ranked_as_they_were_measured() -> None:
    # distributed-llama's own table: 4 x Pi 4 494 ms, 8 x Pi 4 588 ms, 2 x Pi 4 794 ms, one 1,313 ms.
    pis = {f"n{i}": clusters.read_device("device: raspberry-pi-4, memory: 8 GB") for i in range(8)}
    shelf = ClusterModelCosts(
        clusters.star(8, 117.6e6, 100e-6, **pis), with_weights(PRESETS["7b"], "q4"), LENGTHS,
        engine=ENGINES["distributed-llama"],
    )  # fmt: skip
    found = {len(one.parts): one.token_s for one in rank(shelf, 1).placements}
    assert sorted(found, key=found.__getitem__) == [4, 8, 2, 1]


def test_formats_and_names_that_no_engine_has_are_refused() -> None:
    assert tuple(ENGINES) == ENGINE_NAMES
    assert terms_of("llama.cpp", "q4") is ENGINES["llama.cpp"]
    with pytest.raises(UsageError, match=r"found 'llamacpp'; did you mean 'llama.cpp'"):
        terms_of("llamacpp")
    with pytest.raises(UsageError, match=r"found 'int8', expected f32, q4, which distributed-llama holds; "):
        terms_of("distributed-llama", "int8")
