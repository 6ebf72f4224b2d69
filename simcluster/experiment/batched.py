"""The option `batched` of the simulator: what a run must be to compute gradients in groups, checked before it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch

from simcluster.errors import Problem, UsageError
from simcluster.experiment.part import in_parts
from simcluster.experiment.read.experiment import Experiment
from simcluster.runs.record import RunRecord
from simcluster.workloads import Batch, Workload
from simcluster.workloads.grouped import TOLERANCE, distance

log = logging.getLogger("simcluster.run")

EXPECTED = "a model and a loss that torch.func.vmap takes: no dropout, no buffers that change, no branch on a value"


def check_batched(plan: Experiment, options: Mapping[str, Any]) -> None:
    """Raise UsageError if *options* ask for gradients in groups and *plan* cannot have any."""
    if "batched" not in options:
        return
    if plan.backend != "sim":
        found = f"an option of the simulator, on {plan.backend}"
        raise UsageError(Problem("batched", found, "backend: sim, the only one with this option"))
    if options["batched"] is not True:
        return
    size = len(plan.topology.workers)
    if plan.numerics == "none":
        raise UsageError(Problem("batched", "true with numerics: none", "numerics: real, since nothing is computed"))
    if size < 2:
        raise UsageError(Problem("batched", "true on one node", "at least 2, whose gradients make a group"))
    if in_parts(plan, size):
        found = f"true with {plan.algorithm_name}: its ranks hold parts of the model"
        raise UsageError(Problem("batched", found, "an algorithm whose ranks compute gradients of the whole model"))
    check_workload(plan.workload, size, plan.seed)


def check_workload(workload: Workload, size: int, seed: int) -> None:
    """Raise UsageError unless *workload*'s gradients can be computed in groups, tried with those of two replicas."""
    plain, moved = (workload.replica(0, size, seed, steps=1) for _ in range(2))
    batch = plain.first_batch()
    flipped = Batch(*batch.each(lambda tensor: tensor.flip(0)), batch.step)
    before = plain.state()
    alone = [plain.loss_and_gradients(batch), plain.loss_and_gradients(flipped)]
    changed = [name for name, value in plain.state().items() if not torch.equal(value, before[name])]
    if changed:
        found = f"true for a model that changes {changed[0].removeprefix('model.')} in its forward pass"
        raise UsageError(Problem("batched", found, EXPECTED))
    moved.apply(alone[0][1])
    alone.append(moved.loss_and_gradients(flipped))
    grouped = plain.grouped
    assert grouped is not None, "a replica with values, held whole"
    weights, batches = (plain.parameters, plain.parameters, moved.parameters), (batch, flipped, flipped)
    try:
        together = grouped.loss_and_gradients(weights, batches)
        # As for replicas that have just pulled the same weights.
        together += grouped.loss_and_gradients(weights[:2], batches[:2])
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        raise UsageError(Problem("batched", f"true, but {type(error).__name__}: {said}", EXPECTED)) from error
    worst = max(distance(*pair) for pair in zip(together, [*alone, *alone[:2]], strict=True))
    if not worst <= TOLERANCE:
        found = f"true for a model with gradients that then differ by {worst:.2g} of their norm"
        raise UsageError(Problem("batched", found, f"at most {TOLERANCE:g}, as is usual in float32"))


def warn_if_alone(record: RunRecord) -> None:
    """Log that the option had no effect in a run without a group."""
    found = record.extra.get("batched")
    if found is not None and not found["together"]:
        log.warning("batched: each gradient was computed alone; a group takes eight small ones that overlap in time")
