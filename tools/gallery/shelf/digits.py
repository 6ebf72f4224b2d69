"""`mnist_mlp` on a simulated slow device: each gradient includes a pause.

tools.netns.accelerator explains why.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

from torch import nn

from simcluster import Workload
from simcluster.workloads import mnist_mlp
from tools.netns.accelerator import PACE


def make_workload(*, hidden: int = 64, batch_size: int = 32, learning_rate: float = 0.1) -> Workload:
    plain = mnist_mlp(hidden=hidden, batch_size=batch_size, learning_rate=learning_rate)

    def model() -> nn.Module:
        made = plain.model()
        made.register_forward_pre_hook(_pause)
        return made

    return replace(plain, model=model, name="digits")


def _pause(module: nn.Module, _: object) -> None:
    """Sleep before each forward pass in training.

    An evaluation takes no time in a run, so it does not sleep.
    """
    if module.training:
        time.sleep(float(os.environ.get(PACE, "0")))
