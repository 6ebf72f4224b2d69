"""A serving program under test: its nodes, its requests, and the expected tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from simcluster.errors import RunError
from simcluster.experiment.run import run
from simcluster.lab.verify.probe import TENSOR_BYTES, CountingTransport
from simcluster.lab.verify.verdict import CheckFailed
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.sampling import sampled
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.model_share import SequencePart
from simcluster.lm.models.open import open_model
from simcluster.lm.plan.placements import Kind
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.request import Request, Sampling
from simcluster.lm.serving.program import answer, prepare
from simcluster.lm.serving.run import ServingResult, answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.topology import Topology, star
from simcluster.transport import Transport

__all__ = ["PAGES", "PROGRAM", "Page", "answer_counted", "prepare"]

PAGES: Mapping[str, Kind] = {"generate": "pipeline", "generate_tensor": "tensor", "serve_replicas": "replicas"}
"""Name of a serving program -> the kind of placement on which it serves."""

LAYERS, HEADS = 6, 6
SIZES: Mapping[Kind, Sequence[int]] = {"pipeline": range(1, LAYERS + 1), "tensor": (1, 2, 3, 6)}
"""Kind of placement -> world sizes at which every node has a layer, or an equal share of the heads.

Serving replicas have no limit.
"""

MODEL = {"name": "gpt", "layers": LAYERS, "width": 48, "heads": HEADS, "context": 64}
SHAPE = ModelShape("small", LAYERS, 48, 12, 12, 4, 96, 480, True, 2.0)
DEVICE = {
    "flops": "2 GFLOP/s",
    "memory_bandwidth": "1 GB/s",
    "work_overhead": "30 us",
    "operator_overhead": "2 us",
}
PROMPT, OUTPUT = 20, 10
BLOCK_TOKENS = 4


@dataclass(frozen=True)
class Page:
    """The serving program *name*, under test; *home* is a directory for its model."""

    name: str
    sizes: Sequence[int]
    backends: Sequence[str]
    seed: int
    home: Path

    @property
    def kind(self) -> Kind:
        return PAGES[self.name]

    @property
    def middle(self) -> int:
        """The usual world size: 3, or the nearest possible one."""
        return min(self.sizes, key=lambda size: (abs(size - 3), size))

    @cached_property
    def model(self) -> ModelFile:
        """A small GPT, trained for one step."""
        path = self.home / "model"
        trained = {"workload": MODEL, "stop": {"steps": 1}, "evaluate_every": 1}
        run("quickstart", overrides=trained, seed=self.seed, out=path, report=False)
        return open_model(str(path))

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        """Five requests with prompts of 1 to 17 tokens; the first request is greedy.

        All arrive before any of them is answered.
        """
        warm = [Sampling(0.8, 40, 0.95, seed=self.seed + i) for i in range(4)]
        prompts = [tuple((7 * i + 3 * j) % 256 for j in range(1 + 4 * i)) for i in range(5)]
        return tuple(
            Request(str(i), prompt, 10 + 2 * i, sampling, arrival_s=i * 1e-4)
            for i, (prompt, sampling) in enumerate(zip(prompts, [Sampling(), *warm], strict=True))
        )

    @cached_property
    def expected(self) -> dict[str, tuple[int, ...]]:
        """The tokens that each request gets if one process computes it alone."""
        return {one.id: alone(self.model, one) for one in self.requests}

    @cached_property
    def _answered(self) -> dict[tuple[int, str, int], ServingResult]:
        return {}

    def answers(self, size: int, backend: str = "sim", blocks: int = 100) -> ServingResult:
        """Return the result of `answered_again`, cached by its arguments."""
        key = (size, backend, blocks)
        if key not in self._answered:
            self._answered[key] = self.answered_again(*key)
        return self._answered[key]

    def answered_again(self, size: int, backend: str = "sim", blocks: int = 100, guesses: int = 0) -> ServingResult:
        """Answer the requests on *size* nodes with real weights and a cache of *blocks* blocks.

        *guesses* is the limit on guessed tokens per step.
        """
        shape = self.model.shape
        limits = EngineLimits(
            blocks, self.model.context, shape.vocabulary, BLOCK_TOKENS, chunk_tokens=4, guesses=guesses
        )
        setup = Setup(
            str(self.model.path), shape, "f32", "real", self.layout(size), limits, backend != "sim",
            requests=self.requests,
        )  # fmt: skip
        return _answer(setup, size, backend)

    def timed(self, size: int, prompt: int = PROMPT) -> ServingResult:
        """Simulate one request of *prompt* tokens on *size* nodes, without weights."""
        return _answer(self.timed_setup(size, prompt), size)

    def timed_setup(self, size: int, prompt: int = PROMPT) -> Setup:
        limits = EngineLimits(1000, 1000, SHAPE.vocabulary)
        request = Request("0", (0,) * prompt, OUTPUT)
        return Setup("", SHAPE, "f32", "none", self.layout(size), limits, False, requests=(request,))

    def layout(self, size: int) -> PlacementLayout:
        """Return the placement on *size* nodes; pipeline stages differ by at most one layer."""
        each, more = divmod(LAYERS, size)
        stages = tuple(each + (place < more) for place in range(size))
        return PlacementLayout(self.kind, tuple(range(size)), stages if self.kind == "pipeline" else (LAYERS,) * size)


PROGRAM = "simcluster.lab.verify.served.page:answer_counted"


def _answer(setup: Setup, size: int, backend: str = "sim") -> ServingResult:
    """Answer the requests of *setup* on *size* nodes. Raise CheckFailed if the run fails."""
    try:
        return answer_all(setup, shelf(size), backend=backend, program=PROGRAM)
    except RunError as error:
        raise CheckFailed(f"N = {size} on {backend}: {type(error).__name__}: {error}".splitlines()[0]) from None


async def answer_counted(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    """Answer the requests in *config_json*; record the tensor bytes that this node sent."""
    counting = CountingTransport(node)
    try:
        return await answer(counting, recorder, config_json)
    finally:
        recorder.metric_at(recorder.now(), 0, TENSOR_BYTES, counting.tensor_bytes)


def shelf(size: int) -> Topology:
    """Return a star of *size* equal devices."""
    return star(size, device=DEVICE, bandwidth="1 Gbps", latency="50 us")


def alone(model: ModelFile, request: Request) -> tuple[int, ...]:
    """Return the tokens that *request* gets from the simplest loop in one process.

    The first pass takes the prompt, and each later pass one token.
    """
    share = model.share(0, model.shape.layers)
    cache = share.cache(model.context)
    tokens = list(request.prompt)
    inputs = tokens
    while len(tokens) < len(request.prompt) + request.max_tokens:
        (logits,) = share.forward([SequencePart(cache, torch.tensor(inputs))])
        inputs = [sampled(logits[-1], request.sampling, len(tokens))]
        tokens += inputs
    return tuple(tokens[len(request.prompt) :])


def tokens_of(found: ServingResult) -> dict[str, tuple[int, ...]]:
    return {name: one.tokens for name, one in found.answers.items()}
