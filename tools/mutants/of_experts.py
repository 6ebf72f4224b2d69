"""Defects of experts, as mutants."""

from __future__ import annotations

from tools.mutants.places import EXPERT_LAYER, EXPERT_LOAD, EXPERT_PASSES, EXPERTS
from tools.mutants.trial import Mutant

OF_EXPERTS = [
    Mutant(
        "", "an expert that is counted twice: its gradient is summed with those of ranks that do not hold it", EXPERTS,
        "(holders, own)", "(work.replicas, own)",
        "expert_parallel", "one process",
    ),
    Mutant(
        "", "experts without a gradient", EXPERT_PASSES,
        "piece.experts[e].backward, rows, name, 1.0", "piece.experts[e].backward, 0 * rows, name, 1.0",
        "expert_parallel", "one process",
    ),
    Mutant(
        "", "a router outside the optimizer", EXPERT_PASSES,
        'piece.router, "router", by_scores, name, sums',
        'piece.router, "router", by_scores, name, {at: torch.zeros_like(sums[at]) for at in piece.router.parameters}',
        "expert_parallel", "one process",
    ),
    Mutant(
        "", "the capacity of an expert from this rank's tokens, not from all ranks'", EXPERT_LOAD,
        "copies / counts.shape[1] * factor", "copies / counts.size * factor",
        "expert_parallel", "one process", more=("counts.cumsum(axis=0) - counts", "0 * counts"),
    ),
    Mutant(
        "", "whom an expert drops depends on who comes first: here the last rank", EXPERT_LOAD,
        "counts.cumsum(axis=0) - counts", "counts[::-1].cumsum(axis=0)[::-1] - counts",
        "expert_parallel", "one process",
    ),
    Mutant(
        "", "the gradients of merged outputs do not have their weights", EXPERT_LAYER,
        "(above * weights.unsqueeze(1)).to(rows.dtype)", "above.to(rows.dtype)",
        "expert_parallel", "one process",
    ),
]  # fmt: skip
