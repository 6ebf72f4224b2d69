"""A rehearsal of training, after which a process has what torch loads and allocates only once."""

from __future__ import annotations

import torch
from torch import nn

from simcluster.workloads import Workload, sgd


def warm_up() -> None:
    """Count the costs of a tiny model, in parts and whole, and train it for a step."""
    data = (torch.ones(4, 4), torch.arange(4) % 2)
    tiny = Workload(lambda: nn.Sequential(nn.Linear(4, 2)), nn.functional.cross_entropy, data, sgd(0.1), 2)
    for in_parts in (True, False):
        replica = tiny.replica(0, 1, 0, 1, in_parts=in_parts)
        batch = next(replica.batches())
        replica.gradient_cost(batch)
        replica.apply_cost()
    _, gradients = replica.loss_and_gradients(batch)
    replica.apply(gradients)
