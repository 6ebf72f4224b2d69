"""A workload whose gradients take an accelerator's time: its host waits for it, and computes next to nothing itself.

All hosts share the cores of one machine. Were each of them to compute on those, they would slow each other down, and
that is no property of a cluster. So the device is one that works beside its host, as a GPU does: a pause, as long as
the environment of the node's process says. Nobody tells the simulator; the calibration measures it. For the same reason
such a process goes before whatever else this machine has to do: what it does itself is little.
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
    """A linear function of *parameters* inputs, on a device that takes its time for it."""

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
