"""A matrix times all ranks' tensors, in one process: for the references of gossip algorithms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Models = Sequence[Sequence[Tensor]]
"""By rank, then by parameter."""


def times(matrix: npt.NDArray[np.float64], models: Models) -> list[list[Tensor]]:
    """Return row i of *matrix* times all *models*, for every rank i."""
    weights = torch.from_numpy(matrix)
    columns = [torch.stack(tuple(tensors)) for tensors in zip(*models, strict=True)]
    mixed = [torch.tensordot(weights.to(column.dtype), column, dims=1) for column in columns]
    return [[column[rank] for column in mixed] for rank in range(len(models))]


def mean_of_all(models: Models) -> list[list[Tensor]]:
    """Return the mean of all *models*, for every rank."""
    size = len(models)
    return times(np.full((size, size), 1 / size), models)
