"""A model on a cluster as a command asks for it: its names checked, opened, placed, and turned into a setup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, cast

from simcluster.backend import BACKENDS
from simcluster.errors import Problem, UsageError, nearest
from simcluster.lm.engine.limits import CHUNK_TOKENS
from simcluster.lm.engine.serve_replicas import Policy
from simcluster.lm.formats import ALIASES, FORMATS, HELD, format_of
from simcluster.lm.headers.read import shape_of
from simcluster.lm.load.asked import collected
from simcluster.lm.models.architecture import Architecture, Precision
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.open import open_model
from simcluster.lm.plan.shape import ModelShape, with_weights
from simcluster.lm.plan.times import Lengths
from simcluster.lm.processor import engine_topology
from simcluster.lm.request import MOST_TOKENS
from simcluster.lm.serving.placing import AUTO, layout_of, limits_of, policy_of, within
from simcluster.lm.serving.replan import recovery_of
from simcluster.lm.serving.setup import Setup
from simcluster.topology import Topology

MOST_GUESSES: Final = 64


class OpenedModel(NamedTuple):
    """An opened model, None if only times are wanted; its shape, and its context."""

    file: ModelFile | None
    shape: ModelShape
    context: int


@dataclass(frozen=True)
class ClusterModel:
    """A *model*, by its name or file, in *weights* at *placement* on a cluster of *backend*.

    *weights* None: f32, or the model's own format if only times are wanted. *policy*: which replica gets a request.
    *chunk_tokens*: the most prompt tokens per pass. *guesses*: the most guesses per pass of the tokens after one.
    """

    model: str
    backend: str = "sim"
    placement: str = AUTO
    weights: str | None = None
    policy: Policy | None = None
    chunk_tokens: int = CHUNK_TOKENS
    guesses: int = 0

    def opened(
        self, topology: Topology, problems: list[Problem], *, only_times: bool, instead: str
    ) -> OpenedModel | None:
        """Return the model for *topology*, opened unless *only_times* are wanted; add to *problems* all that is wrong
        with it and with the names, and return None if it cannot be used. *instead* are the options for times alone.
        """
        engine_topology(topology, self.backend)
        if not 0 <= self.guesses <= (0 if only_times else MOST_GUESSES):
            expected = "none, as no token is known" if only_times else f"a whole number from 0 to {MOST_GUESSES}"
            problems.append(Problem("--guesses", str(self.guesses), expected))
        if not 0 < self.chunk_tokens <= MOST_TOKENS:
            problems.append(Problem("--chunk-tokens", str(self.chunk_tokens), f"a number from 1 to {MOST_TOKENS:,}"))
        if self.backend not in BACKENDS:
            problems.append(Problem("--backend", repr(self.backend), nearest(self.backend, BACKENDS)))
        collected(problems, lambda: format_of(self.weights or HELD[0], FORMATS if only_times else HELD))
        return collected(problems, lambda: model_of(self.model, self.weights, only_times=only_times, instead=instead))

    def placed(
        self,
        topology: Topology,
        model: OpenedModel,
        lengths: Lengths,
        requests: int = 1,
        cache_bytes: int | None = None,
        firsts: Sequence[int] = (),
    ) -> Setup:
        """Return the setup of *model* for *requests* of *lengths* at once; if none has room for their caches, for one.

        *cache_bytes* and *firsts* are those of Recovery. Raises UsageError with all that is wrong.
        """
        shape = model.shape
        try:
            layout = layout_of(self.placement, topology, shape, lengths, requests)
        except UsageError:
            layout = layout_of(self.placement, topology, shape, lengths)
        settings = {"guesses": self.guesses, "chunk_tokens": self.chunk_tokens}
        limits = limits_of(layout, topology, shape, model.context, **settings)
        if cache_bytes is not None:
            limits = within(limits, layout, shape, cache_bytes)
        return Setup(
            self.model, shape, held(self.weights), "none" if model.file is None else "real", layout, limits,
            self.backend != "sim", policy_of(self.policy, layout),
            recovery=recovery_of(topology, lengths, requests, cache_bytes, firsts),
        )  # fmt: skip


def shape_of_architecture(architecture: Architecture, precision: Precision, name: str) -> ModelShape:
    """Return the shape of a model that is loaded in *precision*."""
    a = architecture
    return ModelShape(
        name, a.layers, a.width, a.heads, a.kv_heads, a.head_width, a.feed_forward, a.vocabulary, a.tied,
        FORMATS[precision], gated=a.gated, context=a.context,
    )  # fmt: skip


def model_of(model: str, weights: str | None, *, only_times: bool, instead: str) -> OpenedModel:
    """Return the opened *model*, unless *only_times* are wanted; its shape in *weights*; and its context.

    Raises UsageError, with *instead* as the way to times alone where a model cannot be loaded.
    """
    if not only_times:
        with offering(model, instead):
            file = open_model(model)
        shape = shape_of_architecture(file.architecture, held(weights), file.name)
        return OpenedModel(file, shape, file.architecture.context)
    shape = shape_of(model)
    if (name := ALIASES.get(weights or "", weights or "")) in FORMATS:
        shape = with_weights(shape, name)
    return OpenedModel(None, shape, shape.context or 2 * MOST_TOKENS)


@contextmanager
def offering(model: str, instead: str) -> Iterator[None]:
    """Let a UsageError of the block end with *instead*, the options for times alone, if those of *model* are known."""
    try:
        yield
    except UsageError as error:
        try:
            shape_of(model)
        except UsageError:
            raise error from None
        *others, last = error.problems
        last = replace(last, expected=f"{last.expected}{'; ' if last.expected else ''}times alone: {instead}")
        raise UsageError([*others, last]) from None


def held(weights: str | None) -> Precision:
    """Return the format in which the engine holds *weights*, or f32 for one that only times have."""
    found = ALIASES.get(weights or HELD[0], weights or HELD[0])
    return cast("Precision", found if found in HELD else HELD[0])
