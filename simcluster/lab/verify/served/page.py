"""A page that serves a model, as it is checked: its nodes, its requests, and the oracle of their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import torch

from simcluster.errors import RunError
from simcluster.experiment.run import run
from simcluster.lab.verify.probe import TENSOR_BYTES, CountingTransport
from simcluster.lab.verify.verdict import CheckFailed
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.models.decoder import SequencePart
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.open import open_model
from simcluster.lm.models.sampling import sampled
from simcluster.lm.plan.placements import Kind
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.request import Request, Sampling
from simcluster.lm.serving.on_cluster import shape_of_architecture
from simcluster.lm.serving.program import answer, prepare
from simcluster.lm.serving.run import ServingResult, answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.topology import Topology, star
from simcluster.transport import Transport

__all__ = ["PAGES", "PROGRAM", "Page", "answer_counted", "prepare"]

PAGES: Final[Mapping[str, Kind]] = {"generate": "pipeline", "generate_tensor": "tensor", "serve_replicas": "replicas"}
"""A page, and the placement that it serves."""

LAYERS, HEADS = 6, 6
SIZES: Final[Mapping[Kind, Sequence[int]]] = {"pipeline": range(1, LAYERS + 1), "tensor": (1, 2, 3, 6)}
"""World sizes with a layer, or an equal share of the heads, for every node; replicas have none."""

MODEL: Final = {"name": "gpt", "layers": LAYERS, "width": 48, "heads": HEADS, "context": 64}
SHAPE: Final = ModelShape("small", LAYERS, 48, 12, 12, 4, 96, 480, True, 2.0)
DEVICE: Final = {
    "flops": "2 GFLOP/s",
    "memory_bandwidth": "1 GB/s",
    "work_overhead": "30 us",
    "operator_overhead": "2 us",
}
PROMPT, OUTPUT = 20, 10
BLOCK_TOKENS = 4


@dataclass(frozen=True)
class Page:
    """The page *name* on *sizes* nodes and *backends*; *home* is a directory for the model."""

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
        """The usual world size: 3, or the nearest one."""
        return min(self.sizes, key=lambda size: (abs(size - 3), size))

    @cached_property
    def model(self) -> ModelFile:
        """The GPT as a run of one step leaves it."""
        path = self.home / "model"
        trained = {"workload": MODEL, "stop": {"steps": 1}, "evaluate_every": 1}
        run("quickstart", overrides=trained, seed=self.seed, out=path, report=False)
        return open_model(str(path))

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        """Five requests of 1 to 17 tokens, the first greedy, that come before the others are answered."""
        warm = [Sampling(0.8, 40, 0.95, seed=self.seed + i) for i in range(4)]
        prompts = [tuple((7 * i + 3 * j) % 256 for j in range(1 + 4 * i)) for i in range(5)]
        return tuple(
            Request(str(i), prompt, 10 + 2 * i, sampling, arrival_s=i * 1e-4)
            for i, (prompt, sampling) in enumerate(zip(prompts, [Sampling(), *warm], strict=True))
        )

    @cached_property
    def expected(self) -> dict[str, tuple[int, ...]]:
        """The tokens of the requests, each computed alone by one process."""
        return {one.id: alone(self.model, one) for one in self.requests}

    @cached_property
    def _answered(self) -> dict[tuple[int, str, int], ServingResult]:
        return {}

    def answers(self, size: int, backend: str = "sim", blocks: int = 100) -> ServingResult:
        """Return what `answered_again` does; the same run for the same arguments."""
        key = (size, backend, blocks)
        if key not in self._answered:
            self._answered[key] = self.answered_again(*key)
        return self._answered[key]

    def answered_again(self, size: int, backend: str = "sim", blocks: int = 100, guesses: int = 0) -> ServingResult:
        """Answer the requests on *size* nodes with real weights, room for *blocks* blocks and at most *guesses*."""
        found = self.model.architecture
        limits = EngineLimits(blocks, found.context, found.vocabulary, BLOCK_TOKENS, chunk_tokens=4, guesses=guesses)
        shape = shape_of_architecture(found, "f32", "gpt")
        setup = Setup(
            str(self.model.path), shape, "f32", "real", self.layout(size), limits, backend != "sim",
            requests=self.requests,
        )  # fmt: skip
        return _answer(setup, size, backend)

    def timed(self, size: int, prompt: int = PROMPT) -> ServingResult:
        """Answer one request of *prompt* tokens on *size* nodes by its sizes alone."""
        limits = EngineLimits(1000, 1000, SHAPE.vocabulary)
        request = Request("0", (0,) * prompt, OUTPUT)
        setup = Setup("", SHAPE, "f32", "none", self.layout(size), limits, False, requests=(request,))
        return _answer(setup, size)

    def layout(self, size: int) -> PlacementLayout:
        """Return the placement on all of *size* nodes, the layers of a pipeline as equal as they can be."""
        each, more = divmod(LAYERS, size)
        stages = tuple(each + (place < more) for place in range(size))
        return PlacementLayout(self.kind, tuple(range(size)), stages if self.kind == "pipeline" else (LAYERS,) * size)


PROGRAM: Final = "simcluster.lab.verify.served.page:answer_counted"


def _answer(setup: Setup, size: int, backend: str = "sim") -> ServingResult:
    """Answer the requests of *setup* on *size* nodes. Raise CheckFailed if the run fails."""
    try:
        return answer_all(setup, shelf(size), backend=backend, program=PROGRAM)
    except RunError as error:
        raise CheckFailed(f"N = {size} on {backend}: {type(error).__name__}: {error}".splitlines()[0]) from None


async def answer_counted(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    """Answer the requests in *config_json*; the record has the tensor bytes that the node sent, as a metric."""
    counting = CountingTransport(node)
    try:
        return await answer(counting, recorder, config_json)
    finally:
        recorder.metric_at(recorder.now(), 0, TENSOR_BYTES, counting.tensor_bytes)


def shelf(size: int) -> Topology:
    """Return a star of *size* equal devices."""
    return star(size, device=DEVICE, bandwidth="1 Gbps", latency="50 us")


def alone(model: ModelFile, request: Request) -> tuple[int, ...]:
    """Return the answer of one process: the whole prompt at once, then a token at a time. The simplest loop."""
    share = model.share(0, model.architecture.layers)
    cache, tokens = share.cache(model.architecture.context), list(request.prompt)
    inputs = tokens
    while len(tokens) < len(request.prompt) + request.max_tokens:
        (logits,) = share.forward([SequencePart(cache, torch.tensor(inputs))])
        inputs = [sampled(logits[-1], request.sampling, len(tokens))]
        tokens += inputs
    return tuple(tokens[len(request.prompt) :])


def tokens_of(found: ServingResult) -> dict[str, tuple[int, ...]]:
    return {name: one.tokens for name, one in found.answers.items()}
