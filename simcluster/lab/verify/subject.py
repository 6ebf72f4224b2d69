"""The subject of a verification: an algorithm, its claims, and the request."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch

from simcluster.documents.captured.source import SourceModule, write_sources
from simcluster.documents.user_code import load_function
from simcluster.errors import Problem, UsageError
from simcluster.experiment.read.given import block_of
from simcluster.lab.verify.claim import Claim
from simcluster.lab.verify.claims import claim_about
from simcluster.lab.verify.running import Runner, RunRequest, RunResult, as_json
from simcluster.scripts.run_script import NAME as SCRIPT
from simcluster.workloads import Workload

SIZES: Final = (1, 2, 3, 4, 7)
QUICK_SIZES: Final = (1, 2, 3)
STEPS: Final = 8
BACKENDS: Final = ("sim", "sockets")

USUAL: Final[Mapping[str, Any]] = {
    "name": "quadratic", "features": 84, "dtype": "float64", "batch_size": 8, "learning_rate": 0.02
}  # fmt: skip
"""84 elements, a multiple of 1, 2, 3, 4 and 7; a rate at which 7 stale ranks are stable."""
SMALL: Final[Mapping[str, Mapping[str, Any]]] = {
    "gpt": {"layers": 2, "width": 84, "heads": 84, "context": 4, "batch_size": 2, "optimizer": "sgd"}
    | {"learning_rate": 0.1, "clip_norm": None},
    "mnist_mlp": {"hidden": 12, "batch_size": 8},
    "quadratic": {name: value for name, value in USUAL.items() if name != "name"},
}
"""Small versions of workloads, for those named without settings."""

ROUNDING: Final = {torch.float64: 1e-9, torch.float32: 2e-4}
"""Tolerance between two ways to compute the same, relative to the largest element."""


UNCLAIMED: Final = Claim("", order_free=False)
"""In place of the claim of an algorithm without one."""


@dataclass(frozen=True)
class Subject:
    """*algorithm* as in an experiment, with *settings* besides those claimed; *runner* caches runs."""

    algorithm: Mapping[str, Any]
    workload: Mapping[str, Any]
    claim: Claim
    settings: Mapping[str, Any]
    sizes: Sequence[int]
    backends: Sequence[str]
    seed: int
    quick: bool

    @cached_property
    def runner(self) -> Runner:
        return Runner(self.algorithm, self.workload)

    @property
    def is_claimed(self) -> bool:
        """Whether there is any claim."""
        return self.claim is not UNCLAIMED

    def request(self, size: int | None = None, **fields: Any) -> RunRequest:
        """Return the plain run with *size* ranks, by default 3; *fields* are a RunRequest's, settings are added."""
        settings = {**self.settings, **fields.pop("settings", {})}
        return replace(
            RunRequest(size or self.middle, seed=self.seed, steps=STEPS, settings=as_json(settings)), **fields
        )

    def run(self, size: int | None = None, **fields: Any) -> RunResult:
        return self.runner.run(self.request(size, **fields))

    @property
    def middle(self) -> int:
        """The usual world size: 3, or the nearest one supported."""
        return min(self.sizes, key=lambda size: (abs(size - 3), size))

    @property
    def several(self) -> list[int]:
        """The world sizes above one."""
        return [size for size in self.sizes if size > 1]

    @cached_property
    def model(self) -> Workload:
        return self.runner.plan(self.request()).workload

    @cached_property
    def rounding(self) -> float:
        """The tolerance between two ways to compute the same, for the model's dtypes."""
        kinds = {parameter.dtype for parameter in self.model.replica(0, 1, self.seed, 1).parameters}
        return max(ROUNDING.get(kind, 0.05) for kind in kinds)

    def complete_settings(self, **settings: Any) -> dict[str, Any]:
        """Return the algorithm's settings, completed by their defaults."""
        return dict(self.runner.plan(self.request(settings=settings)).algorithm_settings)


def subject_of(
    algorithm: str | Callable[..., Any],
    workload: str | Callable[..., Any] | Mapping[str, Any] | Workload | None,
    settings: Mapping[str, Any] | None,
    nodes: Sequence[int] | None,
    backend: str,
    seed: int,
    quick: bool,
    claim: Claim | None,
    home: Path,
) -> Subject:
    """Return the subject for a request, as `simcluster.lab.verify.verify` takes it. Raises UsageError if it is invalid.

    Functions without a file are written below *home*.
    """
    block, found = _algorithm(algorithm, home)
    claim = claim or found or UNCLAIMED
    wanted = nodes or (QUICK_SIZES if quick else SIZES)
    can = [size for size in wanted if claim.sizes is None or size in claim.sizes]
    if not can and nodes is None:
        can = list(claim.sizes or ())[:3]
    if not can:
        raise UsageError(Problem("--nodes", str(list(wanted)), f"some of {list(claim.sizes or ())}, as claimed"))
    backends = BACKENDS if backend == "both" else (backend,)
    own = {name: value for name, value in block.items() if name not in ("name", "path")}
    given = {**claim.settings, **own, **(settings or {})}
    model = workload_block(workload or claim.workload, home)
    subject = Subject(block, model, claim, given, can, backends, seed, quick)
    subject.runner.plan(subject.request())  # reports everything wrong with the request now
    return subject


def _algorithm(algorithm: str | Callable[..., Any], home: Path) -> tuple[dict[str, Any], Claim | None]:
    """Return (the block of an experiment, the claim)."""
    if algorithm == SCRIPT:
        expected = (
            "an algorithm: what a script is to compute is known to itself alone; run it under torchrun, and compare"
        )
        raise UsageError(Problem("algorithm", SCRIPT, expected))
    if isinstance(algorithm, str) and ":" not in algorithm and not algorithm.endswith(".py"):
        return {"name": algorithm}, claim_about(algorithm)
    block = {"path": algorithm} if isinstance(algorithm, str) else _written(block_of("algorithm", algorithm), home)
    if "name" in block:
        return block, claim_about(block["name"])
    function, path = load_function(str(block["path"]), Path.cwd(), "algorithm")
    module = sys.modules[function.__module__]
    claim = getattr(module, "CLAIM", None)
    if claim is not None and not isinstance(claim, Claim):
        name = getattr(module, "__file__", repr(module))
        raise UsageError(Problem("CLAIM", type(claim).__name__, "a Claim, from simcluster.lab.verify.claim", name))
    return {**block, "path": path}, claim


def _written(block: dict[str, Any], home: Path) -> dict[str, Any]:
    """Return *block* with its captured source, if it has one, written below *home*."""
    if not isinstance(block.get("path"), SourceModule):
        return block
    reference = block["path"].held_at(home)
    write_sources([reference])
    return {**block, "path": reference}


def workload_block(
    workload: str | Callable[..., Any] | Mapping[str, Any] | Workload | None, home: Path | None = None
) -> dict[str, Any]:
    """Return the workload as an experiment's block, with its path relative to the present directory."""
    if workload is None:
        return dict(USUAL)
    if isinstance(workload, str):
        return {**block_of("workload", workload), **SMALL.get(workload, {})}
    block: dict[str, Any] = block_of("workload", workload)
    return block if home is None else _written(block, home)
