"""A request to a model as a command has it, checked and turned into a setup before any node starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, cast

from simcluster.errors import Problem, UsageError, nearest
from simcluster.experiment.read.keys import BACKENDS
from simcluster.inference.engine.limits import CHUNK_TOKENS
from simcluster.inference.formats import ALIASES, FORMATS, HELD, format_of
from simcluster.inference.headers.read import shape_of
from simcluster.inference.models.architecture import Architecture, Precision
from simcluster.inference.models.model_file import ModelFile
from simcluster.inference.models.open import open_model
from simcluster.inference.plan.shape import Shape, beyond, with_weights
from simcluster.inference.plan.times import Lengths
from simcluster.inference.processor import engine_topology
from simcluster.inference.request import MOST_TOKENS, Request, Sampling
from simcluster.serving.guessing import NO_GUESSES, Guessing
from simcluster.serving.placing import AUTO, layout_of, limits_of
from simcluster.serving.replan import recovery_of
from simcluster.serving.setup import Setup
from simcluster.topology import Topology

ID = "0"
GREEDY = Sampling()


@dataclass(frozen=True)
class Asked:
    """One request: a text, or the number of tokens of one if only times are wanted, and how it is answered.

    *weights* None: f32, or the model's own format if only times are wanted. *raw*: the model continues the text
    instead of answering it as a user's message. *chunk_tokens*: the most tokens of the prompt per pass.
    """

    model: str
    prompt: str | None = None
    prompt_tokens: int | None = None
    max_tokens: int = 128
    sampling: Sampling = GREEDY
    weights: str | None = None
    placement: str = AUTO
    backend: str = "sim"
    raw: bool = False
    guessing: Guessing = NO_GUESSES
    chunk_tokens: int = CHUNK_TOKENS

    @property
    def is_timed(self) -> bool:
        return self.prompt_tokens is not None

    def problems(self) -> list[Problem]:
        """Return what is wrong with the numbers and names, whatever the model."""
        sampling = self.sampling
        checks = (
            ("--max-tokens", self.max_tokens, "a number from 1 to 1,000,000", 0 < self.max_tokens <= MOST_TOKENS),
            ("--prompt-tokens", self.prompt_tokens, "a number from 1 to 1,000,000",
             self.prompt_tokens is None or 0 < self.prompt_tokens <= MOST_TOKENS),
            ("--temperature", sampling.temperature, "a number from 0 to 100", 0 <= sampling.temperature <= 100),
            ("--top-k", sampling.top_k, "a whole number of at least 0; 0 for all tokens", 0 <= sampling.top_k < 2**31),
            ("--top-p", sampling.top_p, "a number above 0, up to 1", 0 < sampling.top_p <= 1),
            ("--seed", sampling.seed, "a whole number from 0 to 2**63 - 1", 0 <= sampling.seed < 2**63),
            ("--prompt", "none" if self.prompt is None else "one, and --prompt-tokens",
             "a text; or --prompt-tokens for times alone", (self.prompt is None) == self.is_timed),
            ("--prompt-tokens", f"it with --backend {self.backend}", "--backend sim, which needs no numbers",
             not self.is_timed or self.backend == "sim"),
        )  # fmt: skip
        wrong = [Problem(flag, str(found), expected) for flag, found, expected, is_well in checks if not is_well]
        wrong += self.guessing.problems(only_times=self.is_timed) + problems_of_chunks(self.chunk_tokens)
        return wrong + problems_of_names(self.backend, self.weights, only_times=self.is_timed)


def setup_of(asked: Asked, topology: Topology) -> tuple[Setup, ModelFile | None]:
    """Return the setup of *asked* on *topology*, and the opened model unless only times are wanted.

    Raises UsageError with all that is wrong.
    """
    engine_topology(topology, asked.backend)
    problems, file, shape, draft = asked.problems(), None, None, None
    read = partial(model_of, weights=asked.weights, only_times=asked.is_timed, instead="--prompt-tokens N")
    try:
        file, shape, context = read(asked.model)
        draft = asked.guessing.opened((file, shape, context), read)
    except UsageError as error:
        problems += error.problems
    prompt: tuple[int, ...] = (0,) * (asked.prompt_tokens or 0)
    if shape is not None:
        try:
            if file is not None and asked.prompt is not None:
                with offering(asked.model, "--prompt-tokens N"):
                    prompt = tuple(_prompt(file, asked.prompt, asked.raw))
            problems += beyond(shape, len(prompt), asked.max_tokens, "--prompt-tokens") if asked.is_timed else []
            lengths = Lengths(max(len(prompt), 1), max(asked.max_tokens, 1))
            layout = layout_of(asked.placement, topology, shape, lengths, draft=draft)
            settings = {"guesses": asked.guessing.most, "chunk_tokens": asked.chunk_tokens}
            limits = limits_of(layout, topology, shape, context, draft=draft, **settings)
        except UsageError as error:
            problems += error.problems
    if problems:
        raise UsageError(problems)
    assert shape is not None, "without one there is a problem"
    ends = frozenset[int]() if file is None else file.ends
    request = Request(ID, prompt, asked.max_tokens, asked.sampling, ends)
    numerics: Literal["real", "none"] = "none" if asked.is_timed else "real"
    is_real = asked.backend != "sim"
    recovery = recovery_of(topology, lengths)
    return Setup(
        asked.model, shape, held(asked.weights), numerics, layout, limits, is_real, requests=(request,),
        recovery=recovery, draft=draft,
    ), file  # fmt: skip


def shape_of_architecture(architecture: Architecture, precision: Precision, name: str) -> Shape:
    """Return the shape of a model that is loaded in *precision*."""
    a = architecture
    return Shape(
        name, a.layers, a.width, a.heads, a.kv_heads, a.head_width, a.feed_forward, a.vocabulary, a.tied,
        FORMATS[precision], gated=a.gated, context=a.context,
    )  # fmt: skip


def model_of(
    model: str, weights: str | None, *, only_times: bool = False, instead: str
) -> tuple[ModelFile | None, Shape, int]:
    """Return the opened *model*, unless *only_times* are wanted; its shape in *weights*; and its context.

    *weights* None: f32, or the model's own format if only times are wanted. Raises UsageError, with *instead* as the
    way to times alone where a model cannot be loaded.
    """
    if not only_times:
        with offering(model, instead):
            file = open_model(model)
        shape = shape_of_architecture(file.architecture, held(weights), file.name)
        return file, shape, file.architecture.context
    shape = shape_of(model)
    if (name := ALIASES.get(weights or "", weights or "")) in FORMATS:
        shape = with_weights(shape, name)
    return None, shape, shape.context or 2 * MOST_TOKENS


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


def problems_of_chunks(tokens: int) -> list[Problem]:
    """Return what is wrong with *tokens*, the most prompt tokens of a pass."""
    is_well = 0 < tokens <= MOST_TOKENS
    return [] if is_well else [Problem("--chunk-tokens", str(tokens), f"a number from 1 to {MOST_TOKENS:,}")]


def problems_of_names(backend: str, weights: str | None, *, only_times: bool = True) -> list[Problem]:
    """Return what is wrong with the names of a backend and of a format of weights."""
    problems = [] if backend in BACKENDS else [Problem("--backend", repr(backend), nearest(backend, BACKENDS))]
    try:
        format_of(weights or HELD[0], FORMATS if only_times else HELD)
    except UsageError as error:
        problems += error.problems
    return problems


def _prompt(file: ModelFile, text: str, raw: bool) -> list[int]:
    """Return the tokens of *text*: a user's message if the model has a chat template, unless *raw*."""
    if file.chat is not None and not raw:
        return file.chat.render([{"role": "user", "content": text}])
    if file.tokenizer is None:
        raise UsageError(Problem("--model", f"{file.name} without a tokenizer", "one with it, or --prompt-tokens"))
    return file.tokenizer.encode(text)
