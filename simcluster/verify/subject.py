"""What is verified: an algorithm, what is claimed of it, and what every check needs to know of the request."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch

from simcluster.documents.user_code import load_function
from simcluster.errors import Problem, UsageError
from simcluster.verify.claim import Claim
from simcluster.verify.running import Done, Request, Runner, as_json
from simcluster.workloads import Workload

SIZES: Final = (1, 2, 3, 4, 7)
QUICK_SIZES: Final = (1, 2, 3)
STEPS: Final = 8
BACKENDS: Final = ("sim", "sockets")

USUAL: Final[Mapping[str, Any]] = {
    "name": "quadratic", "features": 84, "dtype": "float64", "batch_size": 8, "learning_rate": 0.02
}  # fmt: skip
"""84 elements, which 1, 2, 3, 4 and 7 divide; a rate that 7 ranks can be stale at."""
SMALL: Final[Mapping[str, Mapping[str, Any]]] = {
    "gpt": {
        "layers": 2,
        "width": 84,
        "heads": 84,
        "context": 4,
        "batch_size": 2,
        "optimizer": "sgd",
        "learning_rate": 0.1,
        "clip_norm": None,
    },
    "mnist_mlp": {"hidden": 12, "batch_size": 8},
    "quadratic": {name: value for name, value in USUAL.items() if name != "name"},
}
"""The workloads that are named without settings, small."""

ROUNDING: Final = {torch.float64: 1e-9, torch.float32: 2e-4}
"""How far two ways to compute the same may be apart, as a share of the largest element."""


@dataclass(frozen=True)
class Subject:
    """*algorithm* as an experiment has it, *settings* beside those that are claimed; *runner* keeps what was run."""

    algorithm: Mapping[str, Any]
    workload: Mapping[str, Any]
    claim: Claim | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    sizes: Sequence[int] = SIZES
    backends: Sequence[str] = BACKENDS
    seed: int = 0
    quick: bool = False

    @cached_property
    def runner(self) -> Runner:
        return Runner(self.algorithm, self.workload)

    @property
    def name(self) -> str:
        return str(self.algorithm.get("name") or self.algorithm["path"])

    @property
    def order_free(self) -> bool:
        """Whether it is claimed that the result does not depend on who comes first."""
        return self.claim is not None and self.claim.order_free

    def request(self, size: int | None = None, **fields: Any) -> Request:
        """The plain run with *size* ranks, 3 if it can; *fields* as of a Request, settings on top of the subject's."""
        settings = {**self.settings, **fields.pop("settings", {})}
        return replace(
            Request(size or self.middle, seed=self.seed, steps=STEPS, settings=as_json(settings)),
            **fields,
        )

    def run(self, size: int | None = None, **fields: Any) -> Done:
        return self.runner.run(self.request(size, **fields))

    @property
    def middle(self) -> int:
        """The usual world size: 3, or the nearest there is."""
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
        """How far apart two ways to compute the same may be, by what the model computes in."""
        kinds = {parameter.dtype for parameter in self.model.replica(0, 1, self.seed, 1).parameters}
        return max(ROUNDING.get(kind, 0.05) for kind in kinds)

    def complete_settings(self, **settings: Any) -> dict[str, Any]:
        """The algorithm's settings, with its defaults."""
        return dict(self.runner.plan(self.request(settings=settings)).algorithm_settings)


def subject_of(
    algorithm: str,
    *,
    workload: str | Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    sizes: Sequence[int] | None = None,
    backends: Sequence[str] = BACKENDS,
    seed: int = 0,
    quick: bool = False,
    claim: Claim | None = None,
) -> Subject:
    """What *algorithm*, a name or file.py:function, is verified as. Raises UsageError if it cannot be."""
    block, found = _algorithm(algorithm)
    claim = claim or found
    given = {**(claim.settings if claim else {}), **(settings or {})}
    chosen = workload or (claim.workload if claim else None)
    wanted = sizes or (QUICK_SIZES if quick else SIZES)
    can = [size for size in wanted if claim is None or claim.sizes is None or size in claim.sizes]
    if not can and sizes is None and claim is not None:
        can = list(claim.sizes or ())[:3]
    if not can:
        assert claim is not None
        raise UsageError(Problem("--nodes", str(list(wanted)), f"some of {list(claim.sizes or ())}, as claimed"))
    subject = Subject(block, workload_block(chosen), claim, given, tuple(can), tuple(backends), seed, quick)
    subject.runner.plan(subject.request())  # whatever is wrong with the request is told now
    return subject


def _algorithm(algorithm: str) -> tuple[dict[str, Any], Claim | None]:
    """(the block of an experiment, what is claimed)."""
    if ":" not in algorithm and not algorithm.endswith(".py"):
        module = f"simcluster.verify.claims.{algorithm}"
        there = algorithm.isidentifier() and find_spec(module) is not None
        return {"name": algorithm}, _claim_of(importlib.import_module(module)) if there else None
    function, path = load_function(algorithm, Path.cwd(), "algorithm")
    return {"path": path}, _claim_of(sys.modules[function.__module__])


def _claim_of(module: object) -> Claim | None:
    claim = getattr(module, "CLAIM", None)
    if claim is not None and not isinstance(claim, Claim):
        name = getattr(module, "__file__", repr(module))
        raise UsageError(Problem("CLAIM", type(claim).__name__, "a Claim, from simcluster.verify.claim", name))
    return claim


def workload_block(workload: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """As an experiment has it, its path from here."""
    if workload is None:
        return dict(USUAL)
    if not isinstance(workload, str):
        return dict(workload)
    if ":" in workload:
        file, _, name = workload.rpartition(":")
        return {"path": f"{Path(file).resolve()}:{name}"}
    return {"name": workload, **SMALL.get(workload, {})}
