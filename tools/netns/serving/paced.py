"""`python -m tools.netns.serving.paced node ...`: simcluster with pauses instead of computations.

All hosts share the cores of one machine, so a pause takes the time of an accelerator with the FLOPs
and bytes per second in the environment. The simulator does not know these numbers. Tokens and
streams are zeros.
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
    """A stage that pauses instead of computing its share of a model."""

    def __init__(self, share: Any, *about: Any) -> None:
        super().__init__(share, *about)
        self.choose = _zeros
        self._ends = share.ends

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
