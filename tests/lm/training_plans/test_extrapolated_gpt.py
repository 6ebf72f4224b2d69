"""A model counted on one and two blocks has the costs and the memory of the same model, counted block by block."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import pytest

from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import facts_of
from simcluster.lm.training_plans.candidates import defaults
from simcluster.lm.training_plans.extrapolated_gpt import GptBlocks, short_replica, sized
from simcluster.workloads import Batch
from simcluster.workloads.layers.activations import joint_bytes
from simcluster.workloads.models.gpt import gpt
from simcluster.workloads.timing_replica import TimingReplica
from simcluster.workloads.workload import Workload
from tests.support.levels import sample_of

COUNT = 5
KINDS = {
    "gated, untied": {"size": "7b", "vocabulary": 1000, "kv_heads": 4, "head_width": 64},
    "tied": {"size": "1.3b", "vocabulary": 500, "kv_heads": 8},
    "tied and gated": {"size": "7b", "vocabulary": 300, "kv_heads": 8, "tied": True},
}
SIZES = (5, 2, 4, 1)


@cache
def workload(kind: str, layers: int = COUNT) -> Workload:
    common: dict[str, Any] = {"width": 256, "heads": 8, "feed_forward": 512, "context": 64, "clip_norm": None}
    return gpt(layers=layers, **common | KINDS[kind]).named("gpt")


@cache
def both(kind: str) -> tuple[GptBlocks, TimingReplica, TimingReplica]:
    """The blocks, their replica, and the one that counts every block."""
    blocks = GptBlocks(lambda layers: workload(kind, layers), COUNT)
    return blocks, blocks.replica(SIZES), short_replica(workload(kind), SIZES)


def batch(samples: int) -> Batch:
    return next(short_replica(workload("tied"), [samples]).batches())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("samples", sample_of([1, 3, 2, 7], 2))
def test_work_costs_what_it_costs_block_by_block(kind: str, samples: int) -> None:
    _, tall, real = both(kind)
    assert tall.gradient_cost(batch(samples)) == real.gradient_cost(batch(samples))
    assert tall.layer_costs(batch(samples)) == real.layer_costs(batch(samples))
    assert tall.tensor_shard().costs(batch(samples)) == real.tensor_shard().costs(batch(samples))
    assert tall.apply_cost() == real.apply_cost()


@pytest.mark.parametrize("kind", KINDS)
def test_any_stretch_of_layers_holds_what_it_holds_block_by_block(kind: str) -> None:
    _, tall, real = both(kind)
    counted, expected = tall.held(batch(3)), real.held(batch(3))
    assert len(counted) == len(expected) == 2 * COUNT + 3
    for first, end in combinations(range(len(expected) + 1), 2):
        assert joint_bytes(counted[first:end]) == joint_bytes(expected[first:end]), (first, end)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_and_parts_are_those_of_the_whole_model(kind: str) -> None:
    _, tall, real = both(kind)
    assert [shape.shape for shape in tall.shapes] == [shape.shape for shape in real.shapes]
    assert [layer.parameters for layer in tall.layers()] == [layer.parameters for layer in real.layers()]
    assert tall.layers().shared() == real.layers().shared()
    for places in ([], [0], [0, 1], [2, 3, 4, 5, 6], list(range(len(real.shapes)))):
        a, b = tall.part(places), real.part(places)
        assert (a.apply_cost(), a.norm_cost()) == (b.apply_cost(), b.norm_cost()), places
        assert (a.state_bytes, a.scratch_bytes) == (b.state_bytes, b.scratch_bytes), places


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("in_parts", [True, False])
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("zero", {"stage": 1}),
        ("zero", {"stage": 2}),
        ("zero", {"stage": 3}),
        ("pipeline", {"micro_batches": 2}),
        ("pipeline", {"micro_batches": 4, "schedule": "gpipe"}),
        ("tensor_parallel", {}),
    ],
)
def test_every_rank_holds_in_every_phase_what_it_holds_block_by_block(
    kind: str, in_parts: bool, algorithm: str, settings: dict[str, Any]
) -> None:
    blocks, tall, real = both(kind)
    whole = sized(workload(kind), SIZES).memory("none")
    assert blocks.memory(max(SIZES)) == whole
    phases, given = facts_of(ALGORITHMS[algorithm]).phases, defaults(algorithm) | settings
    assert phases is not None
    assert phases(tall, given, whole, in_parts) == phases(real, given, whole, in_parts)


def test_a_model_of_few_blocks_is_counted_itself() -> None:
    blocks = GptBlocks(lambda layers: workload("tied", layers), 2)
    assert type(blocks.replica([1])) is TimingReplica
    assert blocks.replica([2]).apply_cost() == short_replica(workload("tied", 2), [2]).apply_cost()
