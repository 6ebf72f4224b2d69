"""A training plan: algorithms and splits for a model, ranked by samples per second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Final

from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.model_parallel.expert_load import MOST_SLOPE, shares_of
from simcluster.documents.settings import validate
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.lm.plan.shape import ModelShape, described
from simcluster.lm.training_plans.candidates import LOCAL, Candidate, candidates
from simcluster.lm.training_plans.extrapolated_gpt import GptBlocks
from simcluster.lm.training_plans.model import blocks_of, memory_of, settings_of
from simcluster.lm.training_plans.rank_group import RankGroup, StepTime
from simcluster.lm.training_plans.times import TIMES
from simcluster.topology import Topology
from simcluster.workloads.costs.memory import MemoryBytes

MOST_SAMPLES: Final = 10**6
MOST_TOKENS: Final = 10**5
"""Limits on a request for a plan: samples per step, and tokens per sample."""

BINDS: Final = 0.1
"""LOCAL algorithms are ranked only if communication takes at least this share of a step."""


@dataclass(frozen=True)
class TrainingPart:
    """One node's part of a training: its *samples* per step, and the *memory* that these need.

    *memory_bytes* is the memory that the node has, and *usable_bytes* how much of it training can
    use.
    """

    node: str
    samples: int
    memory: MemoryBytes
    memory_bytes: int | None
    usable_bytes: int | None

    @property
    def missing_bytes(self) -> int:
        return max(0, self.memory.total - self.usable_bytes) if self.usable_bytes is not None else 0


@dataclass(frozen=True)
class PlanRow:
    """A row of the ranking: a *candidate* that fits, its *step* time, and its nodes' *parts*."""

    candidate: Candidate
    step: StepTime
    parts: tuple[TrainingPart, ...]

    @property
    def samples_per_s(self) -> float:
        return sum(self.candidate.sizes) / self.step.step_s


@dataclass(frozen=True)
class ImpossibleTraining:
    """A training that is not ranked, because *node* lacks *missing_bytes* of memory.

    If *missing_bytes* is None, *why* has the reason instead.
    """

    label: str
    node: str
    missing_bytes: int | None
    why: str = ""


@dataclass(frozen=True)
class TrainingPlan:
    """A ranking of trainings. *rows* has the best candidate of each algorithm, the fastest first.

    *less_often* has those of the algorithms that do not exchange in every step: they train
    different weights from the same samples. *left_out* are the nodes that the first row does not
    use, each with the samples per second of the best candidate that does use the node, or None if
    none fits.
    """

    topology: Topology
    shape: ModelShape
    samples: int
    tokens: int
    workload: Mapping[str, Any] = field(repr=False)
    rows: tuple[PlanRow, ...]
    less_often: tuple[PlanRow, ...]
    refused: tuple[ImpossibleTraining, ...]
    left_out: tuple[tuple[str, float | None], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-compatible values."""
        model = described(self.shape)
        asked = {"samples_per_step": self.samples, "tokens_per_sample": self.tokens}
        return {
            "topology": self.topology.name,
            "model": model,
            **asked,
            "workload": {"name": "gpt", **self.workload},
            "trainings": [self._row(row) for row in self.rows],
            "less_often": [self._row(row) for row in self.less_often],
            "refused": [asdict(one) for one in self.refused],
            "left_out": [{"node": name, "best_samples_per_s": rate} for name, rate in self.left_out],
        }

    def _row(self, row: PlanRow) -> dict[str, Any]:
        return {
            "training": row.candidate.label,
            "algorithm": {"name": row.candidate.algorithm, **row.candidate.settings},
            "samples_per_s": row.samples_per_s,
            "tokens_per_s": row.samples_per_s * self.tokens,
            "step_s": row.step.step_s,
            "compute_s": row.step.compute_s,
            "bytes_per_step": row.step.sent_bytes,
            "nodes": [
                {
                    "node": part.node,
                    "samples": part.samples,
                    "needed_bytes": part.memory.total,
                    "parts_bytes": asdict(part.memory),
                    "memory_bytes": part.memory_bytes,
                    "usable_bytes": part.usable_bytes,
                }
                for part in row.parts
            ],
        }


def plan_training(
    topology: Topology, shape: ModelShape, samples: int | None = None, tokens: int = 1024, load: str | None = None
) -> TrainingPlan:
    """Rank all trainings of *shape* on *topology* with *samples* of *tokens* per step.

    If *samples* is None, there are 4 per worker. *load* is that of the experts. Raise UsageError if
    a number or *load* is out of range, if *topology* has no worker, or if the workload `gpt` cannot
    have *shape*.
    """
    samples = 4 * max(1, len(topology.workers)) if samples is None else samples
    longest = min(MOST_TOKENS, shape.context or MOST_TOKENS)
    limits = (("--batch-size", samples, MOST_SAMPLES), ("--sample-tokens", tokens, longest))
    problems = [Problem(flag, str(n), f"a number from 1 to {most:,}") for flag, n, most in limits if not 0 < n <= most]
    if not topology.workers:
        problems.append(Problem(f"topology {topology.name}", "no worker", "nodes with a device"))
    workload: dict[str, Any] = {}
    try:
        workload = settings_of(shape, tokens)
        if load is not None:
            problems += _wrong_load(load, workload)
    except UsageError as error:
        problems += error.problems
    raise_all(problems)
    search = _Search(topology, blocks_of(workload))
    for candidate in candidates(topology, search.blocks, samples, shape.kv_heads, workload.get("experts", 0), load):
        search.consider(candidate)
    found, refused = search.ranked()
    rows = [row for row in found if row.candidate.algorithm not in LOCAL]
    less_often = [row for row in found if row.candidate.algorithm in LOCAL]
    used = rows[0].candidate.names if rows else ()
    left_out = tuple((name, search.with_node.get(name)) for name in topology.workers if rows and name not in used)
    return TrainingPlan(
        topology, shape, samples, tokens, workload, tuple(rows), tuple(less_often), tuple(refused), left_out
    )


def _wrong_load(load: str, workload: Mapping[str, Any]) -> list[Problem]:
    if "experts" not in workload:
        return [Problem("--expert-load", load, "a model with experts")]
    _, wrong = validate(ALGORITHMS["expert_parallel"], {"load": load})
    if wrong:
        return [Problem("--expert-load", load, f"uniform, or zipf(s) with s from 0 to {MOST_SLOPE:g}")]
    try:
        shares_of(load, workload["experts"], workload["active"])
    except UsageError as error:
        return [Problem("--expert-load", problem.found, problem.expected) for problem in error.problems]
    return []


class _Search:
    """The best candidate of each label so far; if none fits, the one that lacks least memory."""

    def __init__(self, topology: Topology, blocks: GptBlocks) -> None:
        self.topology, self.blocks = topology, blocks
        self.group = cache(lambda names, sizes: RankGroup(topology, names, blocks, sizes))
        self.best: dict[str, PlanRow] = {}
        self.lacking: dict[str, ImpossibleTraining] = {}
        self.with_node: dict[str, float] = {}

    def consider(self, candidate: Candidate) -> None:
        """Time *candidate* if it fits; keep it if it is the best one of its label."""
        label = candidate.label
        group = self.group(candidate.names, candidate.sizes)
        try:
            held = memory_of(candidate.algorithm, candidate.settings, self.blocks, group.replica)
        except UsageError as error:
            problem = error.problems[0]
            self._lack(
                ImpossibleTraining(label, f"{len(candidate.names)} nodes", None, f"{problem.found}: {problem.expected}")
            )
            return
        parts = tuple(
            TrainingPart(name, samples, memory, device.memory_bytes, device.usable_bytes)
            for name, samples, memory in zip(candidate.names, candidate.sizes, held, strict=True)
            for device in [self.topology.device(name)]
        )
        worst = max(parts, key=lambda part: part.missing_bytes)
        if worst.missing_bytes:
            self._lack(ImpossibleTraining(label, worst.node, worst.missing_bytes))
            return
        row = PlanRow(candidate, TIMES[candidate.algorithm](group, dict(candidate.settings)), parts)
        if label not in self.best or row.samples_per_s > self.best[label].samples_per_s:
            self.best[label] = row
        if candidate.algorithm not in LOCAL:
            for name in candidate.names:
                self.with_node[name] = max(self.with_node.get(name, 0.0), row.samples_per_s)

    def _lack(self, refused: ImpossibleTraining) -> None:
        known = self.lacking.get(refused.label)
        if known is None or _lacks(refused) < _lacks(known):
            self.lacking[refused.label] = refused

    def ranked(self) -> tuple[list[PlanRow], list[ImpossibleTraining]]:
        """Return (best row of each label, the fastest first; trainings that are not ranked)."""
        found = dict(self.best)
        refused = [one for label, one in self.lacking.items() if label not in self.best]
        averaged = found.get("all_reduce_dp")
        if averaged is not None and averaged.step.step_s * (1 - BINDS) < averaged.step.compute_s:
            share = max(0.0, 1 - averaged.step.compute_s / averaged.step.step_s)
            why = f"all_reduce_dp spends only {100 * share:.2g} % of a step on communication"
            refused += [ImpossibleTraining(name, "", None, why) for name in LOCAL if found.pop(name, None) is not None]
        return sorted(found.values(), key=lambda row: -row.samples_per_s), refused


def _lacks(refused: ImpossibleTraining) -> float:
    return float("inf") if refused.missing_bytes is None else refused.missing_bytes
