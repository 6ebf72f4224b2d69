"""The part that a node loads: its share of the model."""

from __future__ import annotations

from functools import lru_cache

from simcluster.lm.engine.sharded import EngineShard, RealShard, TimedShard
from simcluster.lm.engine.stage import RealStage, Stage, TimedStage
from simcluster.lm.models.architecture import Precision
from simcluster.lm.models.decoder import DecoderShare
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.open import open_model
from simcluster.lm.models.sampling import sampled
from simcluster.lm.models.shard import DecoderShard
from simcluster.lm.serving.setup import Setup


def part_of(setup: Setup, place: int) -> Stage | EngineShard:
    """Return the stage, or the shard, of the *place*-th node of the placement."""
    layout, shape, count = setup.layout, setup.shape, len(setup.layout.ranks)
    if layout.kind == "tensor":
        if setup.numerics == "none":
            return TimedShard(shape, place, count)
        file = file_of(setup.model)
        weights = DecoderShard(file.architecture, file.read, place, count, setup.precision)
        return RealShard(weights, shape, count, sampled)
    first = 0 if layout.kind == "replicas" else layout.first_layer(place)
    last = first + layout.layers[place]
    if setup.numerics == "none":
        return TimedStage(shape, first, last)
    return RealStage(share_of(setup.model, first, last, setup.precision), shape, sampled)


@lru_cache(maxsize=32)
def share_of(model: str, first: int, last: int, precision: Precision) -> DecoderShare:
    """Return a share of *model*; nodes in one process that hold the same layers share the weights."""
    return file_of(model).share(first, last, precision)


@lru_cache(maxsize=4)
def file_of(model: str) -> ModelFile:
    """Return the opened *model*, once per process: its nodes share the header."""
    return open_model(model)
