"""The GPT that represents a language model in a training plan, and its memory per node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import Settings, facts_of
from simcluster.errors import UsageError
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.training_plans.extrapolated_gpt import GptBlocks
from simcluster.workloads.costs.memory import MemoryBytes
from simcluster.workloads.models.gpt import gpt
from simcluster.workloads.timing_replica import TimingReplica

MOST_OFF: Final = 0.01
"""Tolerated share of weights, such as biases, that Llama's layers do not have."""


def settings_of(shape: ModelShape, tokens: int) -> dict[str, Any]:
    """Return the settings of the workload `gpt` for *shape*, with samples of *tokens*.

    Gradients are not clipped, because clipping needs an additional exchange, of their norm. Raise
    UsageError if `gpt` cannot have this shape.
    """
    if shape.cached is not None:
        raise UsageError("--model", "latent attention", "heads of queries, keys and values, as `gpt` has them")
    parts = shape.parts
    experts = parts.experts if parts.routed else 0
    of_expert = parts.routed // (shape.layers * parts.experts * 3 * shape.width)
    of_expert -= of_expert == shape.ffn_width + 1  # experts with biases
    dense = replace(shape, counts=None, gated=True, ffn_width=0 if experts else shape.ffn_width)
    plain = dense.weights + experts * shape.layers * shape.width * (3 * of_expert + 1)
    if abs(shape.weights - plain) > MOST_OFF * plain:
        found = f"{shape.weights:,} weights, where Llama's layers of these sizes have {plain:,}"
        raise UsageError("--model", found, "Llama's layers, or such layers of experts alone, as `gpt` has them")
    mixed = {"experts": experts, "active": parts.active} if experts else {}
    return {
        "size": "7b",  # For Llama's layers. The numbers below replace all of its sizes.
        "layers": shape.layers,
        "width": shape.width,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "head_width": shape.head_size,
        "feed_forward": of_expert if experts else shape.ffn_width,
        "vocabulary": max(256, shape.vocabulary),
        "context": tokens,
        "tied": shape.tied,
        "clip_norm": None,
        **mixed,
    }


def blocks_of(settings: dict[str, Any]) -> GptBlocks:
    """Return the GPT with *settings*, which can be made with any number of layers."""
    return GptBlocks(lambda layers: gpt(**settings | {"layers": layers}, batch_size=1).named("gpt"), settings["layers"])


def memory_of(algorithm: str, settings: Settings, blocks: GptBlocks, replica: TimingReplica) -> list[MemoryBytes]:
    """Return the peak memory of each rank, as *algorithm*'s facts state it.

    Evaluation and regrouping are not included.
    """
    facts = facts_of(ALGORITHMS[algorithm])
    sizes = replica.batch_sizes
    size = len(sizes)
    if facts.phases is not None:
        parted = size > 1 and facts.parts(size, settings)
        phases = facts.phases(replica, settings, blocks.memory(max(sizes)), parted)
        return [max(of_rank, key=lambda phase: phase.total) for of_rank in phases]
    assert facts.copies is not None, algorithm
    wholes = [blocks.memory(samples) for samples in sizes]
    return [
        replace(whole, messages=round(facts.copies(rank, size, settings) * whole.gradients))
        for rank, whole in enumerate(wholes)
    ]
