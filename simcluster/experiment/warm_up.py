"""Rehearse training, so that torch loads and allocates its parts before the run's clock starts."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import facts_of
from simcluster.experiment.read.experiment import own_code
from simcluster.process.loading import compiler_loads
from simcluster.workloads import Workload, sgd

COMPILER = "torch._dynamo"
"""Torch's compiler. torch may import it in the middle of a run, which takes about as long as
importing torch.
"""

PLAIN = frozenset({
    "ad_psgd", "all_reduce_dp", "choco_sgd", "d_psgd", "edp", "gradient_tracking", "k_async", "k_sync", "sgp",
    "softsync", "ssp", "sync_ps",
})  # fmt: skip
"""Algorithms that leave all arithmetic to the replica, unless they compress or work by layers."""


def needs_compiler(document: Mapping[str, Any]) -> bool:
    """Return whether torch may import its compiler in a run of the resolved *document*.

    It does when costs are counted on tensors without values: of parts of a model, of layers, of
    codecs, and of an algorithm's own arithmetic. torch's own optimizers also import it, but only
    user code uses these.
    """
    algorithm = document["algorithm"]
    if document["numerics"] != "real" or own_code(document) or algorithm["name"] not in PLAIN:
        return True
    is_layered = facts_of(ALGORITHMS[algorithm["name"]]).layered(algorithm)
    return is_layered or algorithm.get("compression", "none") != "none"


def warm_up(*, with_compiler: bool) -> None:
    """Count the costs of a tiny model, and train it for one step.

    If *with_compiler*, import the compiler first, and also count the costs of a model in parts.
    """
    if with_compiler:
        with compiler_loads():
            importlib.import_module(COMPILER)
    data = (torch.ones(4, 4), torch.arange(4) % 2)
    tiny = Workload(lambda: nn.Sequential(nn.Linear(4, 2)), nn.functional.cross_entropy, data, sgd(0.1), 2)
    for in_parts in (True, False) if with_compiler else (False,):
        replica = tiny.replica(0, 1, 0, 1, in_parts=in_parts)
        batch = next(replica.batches())
        replica.gradient_cost(batch)
        replica.apply_cost()
    _, gradients = replica.loss_and_gradients(batch)
    replica.apply(gradients)
