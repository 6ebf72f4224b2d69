"""The part of a model that a node loads: a stage or a shard."""

from __future__ import annotations

from functools import lru_cache, partial

import torch

from simcluster.compute import HOST
from simcluster.errors import UsageError
from simcluster.lm.engine.sampling import sampled
from simcluster.lm.engine.sharded import EngineShard, RealShard, TimedShard
from simcluster.lm.engine.stage import RealStage, Stage, StageModel, TimedStage
from simcluster.lm.formats import Precision
from simcluster.lm.models.model_file import FileState, ModelFile
from simcluster.lm.models.model_share import ModelShare
from simcluster.lm.models.open import open_model
from simcluster.lm.other_engines.choice import other_model
from simcluster.lm.plan.engines import DEFAULT
from simcluster.lm.serving.setup import Setup
from simcluster.lm.text.grammar import Constraint, GrammarTokens


def processor_device(setup: Setup, name: str) -> torch.device:
    """Return the device of the node *name*, which is the host if the node only computes times."""
    computes = setup.numerics == "real" and name in setup.processors
    return setup.processors[name].device() if computes else HOST


def part_of(setup: Setup, place: int, name: str) -> Stage | EngineShard:
    """Load and return the stage or shard of the node *name*, at index *place* of the placement."""
    device = processor_device(setup, name)
    if name in setup.processors:
        setup.processors[name].use_threads()
    layout = setup.layout
    shape = setup.shape
    count = len(setup.layout.ranks)
    if layout.kind == "tensor":
        if setup.numerics == "none":
            return TimedShard(shape, place, count)
        weights = file_of(setup.model).share(0, shape.layers, setup.precision, place, count, device)
        return RealShard(weights, shape, count, sampled, partial(_constraint, setup.model))
    first = 0 if layout.kind == "replicas" else layout.first_layer(place)
    last = first + layout.layers[place]
    if setup.numerics == "none":
        return TimedStage(shape, first, last)
    file = file_of(setup.model)
    if setup.engine == DEFAULT:
        share: StageModel = share_of(file, first, last, setup.precision, device)
    else:
        share = other_model(setup.engine, file, setup.limits, device)
    return RealStage(share, shape, sampled, partial(_constraint, setup.model))


def _constraint(model: str, grammar: str) -> Constraint:
    return grammar_tokens(file_of(model)).constraint(grammar)


@lru_cache(maxsize=1)
def grammar_tokens(file: ModelFile) -> GrammarTokens:
    """Return the tokens of *file* for grammars.

    Raise UsageError if the file has no tokenizer, or as GrammarTokens does.
    """
    if file.tokenizer is None:
        raise UsageError("model", "one without a tokenizer", "one with it")
    return GrammarTokens(file.tokenizer, file.ends, file.shape.vocabulary)


@lru_cache(maxsize=32)
def share_of(file: ModelFile, first: int, last: int, precision: Precision, device: torch.device) -> ModelShare:
    """Return the layers [*first*, *last*) of *file*.

    Nodes in one process that have the same layers share their weights.
    """
    return file.share(first, last, precision, device=device)


def file_of(model: str) -> ModelFile:
    """Return the file of *model*. A process opens it once, and again if it has changed on disk."""
    file, before = _opened(model)
    if file.state() != before:
        _opened.cache_clear()
        file, _ = _opened(model)
    return file


@lru_cache(maxsize=4)
def _opened(model: str) -> tuple[ModelFile, FileState]:
    file = open_model(model)
    return file, file.state()
