"""A model on a cluster, as the options of a command: check them, open the model, and place it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, cast

from simcluster.backend import BACKENDS
from simcluster.errors import Problem, UsageError
from simcluster.job import places
from simcluster.lm.engine.limits import CHUNK_TOKENS
from simcluster.lm.engine.serve_replicas import Policy
from simcluster.lm.formats import ALIASES, DEFAULT, FORMATS, Precision, format_of
from simcluster.lm.formats import AUTO as AUTO_FORMAT
from simcluster.lm.headers.read import shape_of
from simcluster.lm.load.load_options import collected
from simcluster.lm.measured_formats import in_format
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.open import open_model
from simcluster.lm.other_engines.choice import CACHE_BYTES, RUNNING, check_engine
from simcluster.lm.plan.engines import DEFAULT as ENGINE
from simcluster.lm.plan.engines import terms_of
from simcluster.lm.plan.shape import ModelShape, with_held_weights, with_weights
from simcluster.lm.plan.times import Lengths
from simcluster.lm.processor import processors_of
from simcluster.lm.request import MOST_TOKENS
from simcluster.lm.serving.placement import AUTO, fastest_placed, layout_of, limits_of, policy_of, within
from simcluster.lm.serving.replacement import recovery_of
from simcluster.lm.serving.setup import Setup
from simcluster.spelling import nearest
from simcluster.topology import Topology

MOST_GUESSES: Final = 64


class OpenedModel(NamedTuple):
    """A model's *file* (None if only times are wanted), *shape*, *context* in tokens, and format."""

    file: ModelFile | None
    shape: ModelShape
    context: int
    precision: Precision = DEFAULT


@dataclass(frozen=True)
class ClusterModel:
    """A *model*, by its name or path, at *placement* on *backend*.

    *weights* is the format of its weights. If *weights* is None, the format is f32, or the model's
    own if only times are wanted. *policy* chooses the replica of a request. *chunk_tokens* is the
    limit on prompt tokens per pass, *guesses* the limit on guessed tokens per sequence and pass.
    *engine* computes on the nodes.
    """

    model: str
    backend: str = "sim"
    placement: str = AUTO
    weights: str | None = None
    policy: Policy | None = None
    chunk_tokens: int = CHUNK_TOKENS
    guesses: int = 0
    engine: str = ENGINE

    def opened(
        self, topology: Topology, problems: list[Problem], *, only_times: bool, instead: str
    ) -> OpenedModel | None:
        """Return the model for *topology*. Its file is not opened if *only_times* are wanted.

        Add all problems of the options and of the model to *problems*; return None if the model
        cannot be used. A problem's message offers *instead*, the options with which only times are
        predicted.
        """
        if not 0 <= self.guesses <= (0 if only_times else MOST_GUESSES):
            expected = "none, as no token is known" if only_times else f"a whole number from 0 to {MOST_GUESSES}"
            problems.append(Problem("--guesses", str(self.guesses), expected))
        if not 0 < self.chunk_tokens <= MOST_TOKENS:
            problems.append(Problem("--chunk-tokens", str(self.chunk_tokens), f"a number from 1 to {MOST_TOKENS:,}"))
        if self.backend not in BACKENDS:
            problems.append(Problem("--backend", repr(self.backend), nearest(self.backend, BACKENDS)))
        if self.weights == AUTO_FORMAT:
            return collected(problems, lambda: self._fastest(topology, only_times, instead))
        name = collected(problems, lambda: None if self.weights is None else format_of(self.weights))
        terms = collected(problems, lambda: terms_of(self.engine, name, runs=True))
        found = collected(problems, lambda: model_of(self.model, self.weights, only_times=only_times, instead=instead))
        if terms is None or found is None:
            return None  # a placement would report the engine again
        if self.engine == ENGINE:
            return found
        is_here = self.backend == "sim" or (None, None) in zip(*places(topology, {}), strict=True)
        collected(problems, lambda: check_engine(self.engine, self.weights, found.file, is_here))
        shape = found.shape if name is None else with_weights(found.shape, name)
        if found.file is not None:
            shape = replace(found.file.shape, name=found.file.name)
        return found._replace(shape=terms.shaped(shape))

    def _fastest(self, topology: Topology, only_times: bool, instead: str) -> OpenedModel:
        """Return the model in the fastest measured format that fits."""
        if self.engine != ENGINE:
            raise UsageError("--weights", repr(self.weights), f"none: {self.engine} keeps the format of the file")

        model = model_of(self.model, DEFAULT, only_times=only_times, instead=instead)

        name = fastest_placed(topology, model.shape, self.placement)
        return model._replace(shape=with_held_weights(model.shape, name), precision=name)

    def placed(
        self,
        topology: Topology,
        model: OpenedModel,
        lengths: Lengths,
        requests: int = 1,
        cache_bytes: int | None = None,
        firsts: Sequence[int] = (),
    ) -> Setup:
        """Return the setup of *model* for *requests* of *lengths* at once.

        If no placement has room for that many caches, the setup is for a single request.
        *cache_bytes* and *firsts* are fields of Recovery. Raise UsageError with all problems.
        """
        shape = model.shape
        devices = in_format(topology, model.precision)
        try:
            layout = layout_of(self.placement, devices, shape, lengths, requests, self.engine)
        except UsageError:
            layout = layout_of(self.placement, devices, shape, lengths, engine=self.engine)
        settings = {"guesses": self.guesses, "chunk_tokens": self.chunk_tokens}
        if self.engine != ENGINE:
            settings |= {"running": RUNNING, "kept": RUNNING}
            if cache_bytes is None:  # these engines allocate the whole cache at once
                cache_bytes = max(CACHE_BYTES, round(1.1 * shape.cache_bytes(shape.layers, lengths.most + 16)))
        limits = limits_of(layout, topology, shape, model.context, **settings)
        if cache_bytes is not None:
            limits = within(limits, layout, shape, cache_bytes)
        return Setup(
            self.model, shape, model.precision, "none" if model.file is None else "real", layout, limits,
            self.backend != "sim", policy_of(self.policy, layout),
            recovery=recovery_of(topology, lengths, requests, cache_bytes, firsts),
            processors={} if self.backend == "sim" else processors_of(topology), engine=self.engine,
        )  # fmt: skip


def model_of(model: str, weights: str | None, *, only_times: bool, instead: str) -> OpenedModel:
    """Return the file of *model* (None if *only_times* are wanted), its shape and its context.

    The shape has the weights in the format *weights*. Raise UsageError if the model cannot be used.
    If times can still be predicted, the message offers *instead*, the options for that.
    """
    if not only_times:
        with offering(model, instead):
            file = open_model(model)
        shape = with_held_weights(replace(file.shape, name=file.name), held(weights))
        return OpenedModel(file, shape, file.context, held(weights))
    shape = shape_of(model)
    # `opened` reports an unknown format, which must not hide problems of the model.
    if (name := ALIASES.get(weights or "", weights or "")) in FORMATS:
        shape = with_held_weights(shape, format_of(name))
    return OpenedModel(None, shape, shape.context or 2 * MOST_TOKENS, held(weights))


@contextmanager
def offering(model: str, instead: str) -> Iterator[None]:
    """Let a UsageError of the block offer *instead*, the options that only predict times.

    The error offers them only if the shape of *model* is known, which is all that a prediction
    needs.
    """
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
    """Return the format with the name or alias *weights*; the default if it is None or unknown."""
    found = ALIASES.get(weights or DEFAULT, weights or DEFAULT)
    return cast("Precision", found) if found in FORMATS else DEFAULT
