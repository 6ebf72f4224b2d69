"""The serving program: every node runs it in place of an algorithm, on any backend.

A node loads its share of the model, and all wait for each other. The clock of arrivals starts there, at the first node
of the placement, which has the desk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from simcluster.collectives import barrier, subgroup
from simcluster.inference.engine.desk import Sink, Source
from simcluster.inference.engine.engine import Engine
from simcluster.inference.engine.generate import generate
from simcluster.inference.engine.scheduler import Scheduler
from simcluster.inference.engine.stage import RealStage, Stage, TimedStage
from simcluster.inference.models.architecture import Precision
from simcluster.inference.models.decoder import Share
from simcluster.inference.models.model_file import ModelFile
from simcluster.inference.models.open import open_model
from simcluster.inference.models.sampling import sampled
from simcluster.process.memory import peak_rss_bytes
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.serving.desks import BEGAN, GivenSource, RecordingSink
from simcluster.serving.setup import Setup, read_setup
from simcluster.transport import FREE, Transport

Desk: TypeAlias = Callable[[], tuple[Source, Sink]]
"""Makes the source and the sink on the first node, once the model is loaded everywhere."""


def prepare(config_json: str) -> None:
    """Open the model's file before the clock starts."""
    setup = read_setup(config_json)
    if setup.numerics == "real":
        _file(setup.model)


async def answer(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    """Answer the requests that are given in *config_json*, a Setup; record the tokens at the first node."""
    setup = read_setup(config_json)
    return await take_part(node, recorder, setup, lambda: (GivenSource(setup.requests), RecordingSink(node)))


async def take_part(node: Transport, recorder: Recorder, setup: Setup, desk: Desk) -> NodeRecord:
    """Do *node*'s part of *setup* until *desk*'s source ends; return the filled record of *recorder*."""
    layout = setup.layout
    if node.rank in layout.ranks:
        place = layout.ranks.index(node.rank)
        stage: Stage = await node.compute(_stage, setup, place, cost=FREE)
        await barrier(subgroup(node, layout.ranks), "loaded")
        recorder.metric_at(recorder.now(), 0, "loading_s", recorder.record.compute_s)
        recorder.metric_at(recorder.now(), 0, BEGAN, 0.0)
        engine = Engine(Scheduler(setup.limits), *desk()) if place == 0 else None
        await generate(node, stage, layout.ranks, engine)
        recorder.metric_at(recorder.now(), 0, "weight_bytes", stage.weight_bytes)
        recorder.metric_at(recorder.now(), 0, "cache_bytes", stage.peak_cache_bytes)
    if setup.is_real:
        recorder.record.peak_rss_bytes = peak_rss_bytes()
    recorder.record.ended_well = True
    return recorder.finish(None)


def _stage(setup: Setup, place: int) -> Stage:
    """Return the stage of the *place*-th node of a pipeline."""
    layout, total = setup.layout, setup.shape.layers
    first = layout.first_layer(place)
    last = first + layout.layers[place]
    if setup.numerics == "none":
        return TimedStage(setup.shape, first, last)
    assert last <= total, "a placement has the model's layers"
    return RealStage(_share(setup.model, first, last, setup.precision), setup.shape, sampled)


@lru_cache(maxsize=32)
def _share(model: str, first: int, last: int, precision: Precision) -> Share:
    """Return a share of *model*; nodes in one process that hold the same layers share the weights."""
    return _file(model).share(first, last, precision)


@lru_cache(maxsize=4)
def _file(model: str) -> ModelFile:
    """Return the opened *model*, once per process: its nodes read their tensors from the same mapped file."""
    return open_model(model)
