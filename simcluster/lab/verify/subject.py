"""The subject of a verification: an algorithm, its claims, and the requested checks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from simcluster.documents.captured.source import SourceModule, write_sources
from simcluster.documents.user_code import load_function
from simcluster.errors import UsageError
from simcluster.experiment.read.given import block_of
from simcluster.lab.verify.claim import Claim
from simcluster.lab.verify.claims import claim_about
from simcluster.lab.verify.running import Runner, RunRequest, RunResult, as_json
from simcluster.scripts.run_script import NAME as SCRIPT
from simcluster.workloads import Workload

SIZES = (1, 2, 3, 4, 7)
QUICK_SIZES = (1, 2, 3)
STEPS = 8
BACKENDS = ("sim", "sockets")

USUAL: Mapping[str, Any] = {
    "name": "quadratic", "features": 84, "dtype": "float64", "batch_size": 8, "learning_rate": 0.02
}  # fmt: skip
"""The usual workload: 1, 2, 3, 4 and 7 divide its 84 elements, and 7 stale ranks converge."""
SMALL: Mapping[str, Mapping[str, Any]] = {
    "gpt": {"layers": 2, "width": 84, "heads": 84, "context": 4, "batch_size": 2, "optimizer": "sgd"}
    | {"learning_rate": 0.1, "clip_norm": None},
    "mnist_cnn": {"channels": 2, "batch_size": 8},
    "mnist_mlp": {"hidden": 12, "batch_size": 8},
    "mnist_moe": {"hidden": 12, "experts": 6, "expert_width": 8, "batch_size": 8},
    "quadratic": {name: value for name, value in USUAL.items() if name != "name"},
}
"""Name of a workload -> settings of a small version, used if only the name is given."""

ROUNDING = {torch.float64: 1e-9, torch.float32: 2e-4}
"""Type -> tolerance between two ways to compute a result, relative to the largest element."""


UNCLAIMED = Claim("", order_free=False)
"""The claim of an algorithm that makes none."""


@dataclass(frozen=True)
class Subject:
    """An algorithm and a workload, as blocks of an experiment, and the limits of their checks."""

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
        """Whether the algorithm has a claim."""
        return self.claim is not UNCLAIMED

    def request(self, size: int | None = None, **fields: Any) -> RunRequest:
        """Return a request for *size* ranks (`middle` if None), with *fields* of a RunRequest.

        The field *settings* is added to the subject's settings.
        """
        settings = {**self.settings, **fields.pop("settings", {})}
        return replace(
            RunRequest(size or self.middle, seed=self.seed, steps=STEPS, settings=as_json(settings)), **fields
        )

    def run(self, size: int | None = None, **fields: Any) -> RunResult:
        return self.runner.run(self.request(size, **fields))

    @property
    def middle(self) -> int:
        """The usual world size: 3, or the nearest supported one."""
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
        """The tolerance between two ways to compute a result, given the model's dtypes."""
        kinds = {parameter.dtype for parameter in self.model.replica(0, 1, self.seed, 1).parameters}
        return max(ROUNDING.get(kind, 0.05) for kind in kinds)

    def complete_settings(self, **settings: Any) -> dict[str, Any]:
        """Return the algorithm's settings with *settings* added, completed by the defaults."""
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
    """Return the subject of a verification.

    The arguments are those of `simcluster.lab.verify.verify`. Functions without a file are
    written below *home*. Raise UsageError for an invalid request.
    """
    block, found = _algorithm(algorithm, home)
    claim = claim or found or UNCLAIMED
    wanted = nodes or (QUICK_SIZES if quick else SIZES)
    can = [size for size in wanted if claim.sizes is None or size in claim.sizes]
    if not can and nodes is None:
        can = list(claim.sizes or ())[:3]
    if not can:
        raise UsageError("--nodes", str(list(wanted)), f"some of {list(claim.sizes or ())}, as claimed")
    backends = BACKENDS if backend == "both" else (backend,)
    own = {name: value for name, value in block.items() if name not in ("name", "path")}
    given = {**claim.settings, **own, **(settings or {})}
    model = workload_block(workload or claim.workload, home)
    subject = Subject(block, model, claim, given, can, backends, seed, quick)
    subject.runner.plan(subject.request())  # Report an invalid request before anything runs.
    return subject


def _algorithm(algorithm: str | Callable[..., Any], home: Path) -> tuple[dict[str, Any], Claim | None]:
    """Return (*algorithm* as a block of an experiment, its claim or None)."""
    if algorithm == SCRIPT:
        expected = (
            "an algorithm: what a script is to compute is known to itself alone; run it under torchrun, and compare"
        )
        raise UsageError("algorithm", SCRIPT, expected)
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
        raise UsageError("CLAIM", type(claim).__name__, "a Claim, from simcluster.lab.verify.claim", name)
    return {**block, "path": path}, claim


def _written(block: dict[str, Any], home: Path) -> dict[str, Any]:
    """Return *block*; if it has captured source, write the source below *home* and refer to it."""
    if not isinstance(block.get("path"), SourceModule):
        return block
    reference = block["path"].held_at(home)
    write_sources([reference])
    return {**block, "path": reference}


def workload_block(
    workload: str | Callable[..., Any] | Mapping[str, Any] | Workload | None, home: Path | None = None
) -> dict[str, Any]:
    """Return *workload* as a block of an experiment; None means the usual workload.

    A built-in name gets the settings of its small version. Paths are relative to the current
    directory; captured source is written below *home* if given.
    """
    if workload is None:
        return dict(USUAL)
    if isinstance(workload, str):
        return {**block_of("workload", workload), **SMALL.get(workload, {})}
    block: dict[str, Any] = block_of("workload", workload)
    return block if home is None else _written(block, home)
