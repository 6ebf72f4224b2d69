"""A workload with gradients that take an accelerator's time, but hardly any CPU time.

All hosts share the cores of one machine. If they computed, they would slow each other down, unlike
the hosts of a cluster. So a pause stands in for a GPU. Its length is in the environment of the
node's process. The simulator does not know this length; the calibration measures it. The process
also has priority over everything else on this machine, which is harmless because it uses little CPU
time.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

import torch
from torch import Tensor, nn

from simcluster import Workload
from simcluster.workloads import sgd

PACE = "SIMCLUSTER_TEST_ACCELERATOR_S"

if PACE in os.environ:
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


class Paced(nn.Module):
    """A linear function of *parameters* inputs. A pause stands in for its computation."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(parameters))

    def forward(self, inputs: Tensor) -> Tensor:
        time.sleep(float(os.environ.get(PACE, "0")))
        return inputs @ self.weight


def make_workload(*, parameters: int = 100_000, samples: int = 16) -> Workload:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(samples, parameters, generator=generator) / parameters**0.5
    return Workload(
        model=lambda: Paced(parameters),
        loss=nn.functional.mse_loss,
        train=(inputs, inputs.sum(dim=1)),
        optimizer=sgd(0.1),
        batch_size=1,
    )
