"""A whole model in MLX on an Apple machine, through the package mlx-lm.

No machine of this project could run it: tests replace mlx-lm with a stand-in that has the same calls.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import torch
from mlx_lm.models import cache as prompt_cache
from mlx_lm.utils import load_model
from torch import Tensor

from simcluster.errors import RunError
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.model_share import SequencePart


def load(file: ModelFile, limits: EngineLimits, device: torch.device) -> MlxModel:
    """Return the model in the folder of *file*. MLX allocates a cache as it grows, on its own device."""
    return MlxModel(load_model(file.path)[0], file)


class MlxModel:
    """mlx-lm's *model*; each sequence has its own cache. It is a StageModel."""

    def __init__(self, model: Any, file: ModelFile) -> None:
        self.first, self.last = 0, file.shape.layers
        self.nbytes = round(file.shape.whole_bytes)
        self._model = model

    def cache(self, capacity: int) -> MlxSequence:
        """Return an empty sequence for *capacity* tokens."""
        return MlxSequence(prompt_cache.make_prompt_cache(self._model), capacity)

    def forward(self, parts: Sequence[SequencePart], last: Sequence[int] | None = None) -> list[Tensor]:
        """Return the logits of the *last* tokens of each part, of all tokens if it is None.

        Sequences follow each other: mlx-lm's batches cannot be joined and left at any token.
        """
        found = []
        for place, part in enumerate(parts):
            room: Any = part.cache
            size = len(part.inputs)
            count = size if last is None else last[place]
            logits = self._model(mx.array([part.inputs.tolist()]), cache=room.layers)[0, size - count :]
            found.append(torch.from_numpy(np.array(logits.astype(mx.float32))))
            room.added(size)
        return found


class MlxSequence:
    """The caches *layers* of one sequence, for *capacity* tokens. It is such a cache as StageModel has."""

    def __init__(self, layers: list[Any], capacity: int) -> None:
        self.layers = layers
        self.capacity = capacity
        self._length = 0

    @property
    def length(self) -> int:
        return self._length

    @length.setter
    def length(self, tokens: int) -> None:
        more = self._length - tokens
        if more > 0 and prompt_cache.trim_prompt_cache(self.layers, more) != more:
            raise RunError(f"mlx cannot drop tokens of this model after the first {tokens}")
        self._length = tokens

    def added(self, tokens: int) -> None:
        self._length += tokens

    def copy(self, source: MlxSequence, tokens: int) -> None:
        self.layers = copy.deepcopy(source.layers)
        self._length = source.length
        self.length = tokens
