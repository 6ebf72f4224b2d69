"""The parts that a node loads: its share of the model, and the small model that guesses."""

from __future__ import annotations

from functools import lru_cache

from simcluster.inference.engine.draft import Draft
from simcluster.inference.engine.guesses import Guesser, LookUp
from simcluster.inference.engine.sharded import RealShard, Shard, TimedShard
from simcluster.inference.engine.stage import RealStage, Stage, TimedStage
from simcluster.inference.models.architecture import Precision
from simcluster.inference.models.decoder import Share
from simcluster.inference.models.model_file import ModelFile
from simcluster.inference.models.open import open_model
from simcluster.inference.models.sampling import sampled
from simcluster.inference.models.shard import Shard as ShardWeights
from simcluster.serving.setup import Setup


def parts_of(setup: Setup, place: int) -> tuple[Stage | Shard, Guesser]:
    """Return the share of the model on the *place*-th node of the placement, and its guesser."""
    return _made(setup, place), guesser_of(setup, place)


def _made(setup: Setup, place: int) -> Stage | Shard:
    """Return the stage, or the shard, of the *place*-th node of the placement."""
    layout, shape, count = setup.layout, setup.shape, len(setup.layout.ranks)
    if layout.kind == "tensor":
        if setup.numerics == "none":
            return TimedShard(shape, place, count, _acceptance(setup))
        file = file_of(setup.model)
        weights = ShardWeights(file.architecture, file.read, place, count, setup.precision)
        return RealShard(weights, shape, count, sampled)
    first = 0 if layout.kind == "replicas" else layout.first_layer(place)
    last = first + layout.layers[place]
    if setup.numerics == "none":
        return TimedStage(shape, first, last, _acceptance(setup))
    return RealStage(share_of(setup.model, first, last, setup.precision), shape, sampled)


def _acceptance(setup: Setup) -> float:
    return 0.0 if setup.draft is None else setup.draft.acceptance


def guesser_of(setup: Setup, place: int) -> Guesser:
    """Return the guesser of the *place*-th node, with the small model if there is one and the node decodes."""
    draft = setup.draft
    if draft is None or not setup.layout.guesses(place):
        return LookUp()
    layers = draft.shape.layers
    stage: Stage = TimedStage(draft.shape, 0, layers)
    if setup.numerics == "real":
        stage = RealStage(share_of(draft.model, 0, layers, setup.precision), draft.shape, sampled)
    return Draft(stage, draft.context, setup.limits.chunk_tokens)


@lru_cache(maxsize=32)
def share_of(model: str, first: int, last: int, precision: Precision) -> Share:
    """Return a share of *model*; nodes in one process that hold the same layers share the weights."""
    return file_of(model).share(first, last, precision)


@lru_cache(maxsize=4)
def file_of(model: str) -> ModelFile:
    """Return the opened *model*, once per process: its nodes share the header."""
    return open_model(model)
