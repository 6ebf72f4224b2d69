"""`python -m tests.netns.serving.paced node ...`: simcluster with stages that take an accelerator's time.

All hosts share the cores of one machine, so the device is a pause: as long as an accelerator with the FLOPs and bytes
per second in the environment would compute or read, and hidden from the simulator. Tokens and streams are zeros.
"""

from __future__ import annotations

import os
import time

import torch
from torch import Tensor

from simcluster.__main__ import main
from simcluster.inference.engine.batch import Batch
from simcluster.inference.engine.stage import RealStage
from tests.netns.accelerator import PACE


class Paced:
    """What replaces the work of a RealStage."""

    @staticmethod
    def forward(stage: RealStage, batch: Batch, inputs: Tensor) -> Tensor:
        flops_per_s, bytes_per_s = map(float, os.environ[PACE].split(","))
        costs, ends = stage.costs, stage._share.ends
        parts = [costs.layers_of(batch), *([costs.head_of(batch)] if ends else [])]
        time.sleep(sum(max(part.flops / flops_per_s, part.memory_bytes / bytes_per_s) for part in parts))
        stage._held.note(batch)
        shape = costs.shape
        return torch.zeros((batch.samples, shape.vocabulary) if ends else (batch.tokens, shape.width))

    @staticmethod
    def choose(stage: RealStage, batch: Batch, logits: Tensor) -> Tensor:
        return torch.zeros(batch.samples, dtype=torch.int32)


if __name__ == "__main__":
    RealStage.forward = Paced.forward  # type: ignore[method-assign]
    RealStage.choose = Paced.choose  # type: ignore[method-assign]
    main()
