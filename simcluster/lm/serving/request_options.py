"""A request to a model, as the options of a command: check it before any node starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from simcluster.errors import Problem, UsageError
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.plan.shape import beyond
from simcluster.lm.plan.times import Lengths
from simcluster.lm.request import MOST_TOKENS, Request, Sampling
from simcluster.lm.serving.cluster_model import ClusterModel, offering
from simcluster.lm.serving.setup import Setup
from simcluster.topology import Topology

ID = "0"
GREEDY = Sampling()
TIMES: Final = "--prompt-tokens N"


@dataclass(frozen=True)
class RequestOptions(ClusterModel):
    """One request: a text *prompt*, or *prompt_tokens* tokens if only times are wanted.

    If *raw*, the model continues the text instead of answering it as a user's message.
    """

    prompt: str | None = None
    prompt_tokens: int | None = None
    max_tokens: int = 128
    sampling: Sampling = GREEDY
    raw: bool = False

    @property
    def is_timed(self) -> bool:
        return self.prompt_tokens is not None

    def problems(self) -> list[Problem]:
        """Return the problems of the request that do not depend on the model."""
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
        return [Problem(flag, str(found), expected) for flag, found, expected, is_well in checks if not is_well]


def setup_of(asked: RequestOptions, topology: Topology) -> tuple[Setup, ModelFile | None]:
    """Return the setup of *asked* on *topology*, and the model's file.

    The file is None if only times are wanted. Raise UsageError with all problems.
    """
    problems, setup = asked.problems(), None
    model = asked.opened(topology, problems, only_times=asked.is_timed, instead=TIMES)
    if model is None:
        raise UsageError(problems)
    prompt: tuple[int, ...] = (0,) * (asked.prompt_tokens or 0)
    try:
        if model.file is not None and asked.prompt is not None:
            with offering(asked.model, TIMES):
                prompt = tuple(_prompt(model.file, asked.prompt, asked.raw))
        if asked.is_timed:
            problems += beyond(model.shape, len(prompt), asked.max_tokens, "--prompt-tokens")
        setup = asked.placed(topology, model, Lengths(max(len(prompt), 1), max(asked.max_tokens, 1)))
    except UsageError as error:
        problems += error.problems
    if problems or setup is None:
        raise UsageError(problems)
    ends = frozenset[int]() if model.file is None else model.file.ends
    request = Request(ID, prompt, asked.max_tokens, asked.sampling, ends)
    return replace(setup, requests=(request,)), model.file


def _prompt(file: ModelFile, text: str, raw: bool) -> list[int]:
    """Return the tokens of *text*, which is a user's message in a chat unless *raw*.

    A model without a chat template always gets the plain text. Raise UsageError if the model has no
    tokenizer, or if it cannot encode *text*.
    """
    if file.chat is not None and not raw:
        return file.chat.render([{"role": "user", "content": text}])
    if file.tokenizer is None:
        raise UsageError("--model", f"{file.name} without a tokenizer", "one with it, or --prompt-tokens")
    return file.tokenizer.prompt(text)
