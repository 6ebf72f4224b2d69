"""`python -m tools.netns.serving.paced node ...`: simcluster with stages that take an accelerator's time.

All hosts share the cores of one machine, so the device is a pause: as long as an accelerator with the FLOPs and bytes
per second in the environment would compute or read, and hidden from the simulator. Tokens and streams are zeros.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch import Tensor

from simcluster.__main__ import main
from simcluster.lm.engine import stage
from simcluster.lm.engine.batch import EngineBatch
from tools.netns.accelerator import PACE


class PacedStage(stage.RealStage):
    """The stage of a share of a model, with pauses in the place of its work."""

    def __init__(self, share: Any, *about: Any) -> None:
        super().__init__(share, *about)
        self.choose, self._ends = _zeros, share.ends

    def forward(self, batch: EngineBatch, inputs: Tensor) -> Tensor:
        flops_per_s, bytes_per_s = map(float, os.environ[PACE].split(","))
        parts = [self.costs.layers_of(batch), *([self.costs.head_of(batch)] if self._ends else [])]
        time.sleep(sum(max(part.flops / flops_per_s, part.memory_bytes / bytes_per_s) for part in parts))
        self._held.note(batch)
        shape = self.costs.shape
        return torch.zeros((batch.rows, shape.vocabulary) if self._ends else (batch.tokens, shape.width))


def _zeros(batch: EngineBatch, logits: Tensor) -> stage.Chosen:
    tokens, counts = stage.unknown(batch)
    return torch.zeros_like(tokens), counts


if __name__ == "__main__":
    stage.RealStage = PacedStage  # type: ignore[misc]
    main()
