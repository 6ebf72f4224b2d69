"""A rehearsal of training, after which a process has what torch loads and allocates only once."""

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
"""Torch's compiler. Torch imports it by itself in the midst of a run, which takes about as long as to import torch."""


def needs_compiler(document: Mapping[str, Any]) -> bool:
    """Return whether torch may import its compiler in a run of the resolved *document*.

    It does for fake tensors, on which parts of a model are counted, for some work without values, for what codecs cost,
    and for torch's own optimizers, which only user code has.
    """
    algorithm = document["algorithm"]
    in_parts = facts_of(ALGORITHMS.get(algorithm.get("name", ""))).phases is not None
    compresses = algorithm.get("compression", "none") != "none"
    return in_parts or compresses or document["numerics"] != "real" or bool(own_code(document))


def warm_up(*, with_compiler: bool) -> None:
    """Count the costs of a tiny model and train it for a step.

    *with_compiler*: import the compiler first, and count the costs in parts, too.
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
