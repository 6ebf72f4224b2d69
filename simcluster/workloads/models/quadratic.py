"""Least squares on synthetic data. The loss is exactly quadratic in the weights, and a step is
cheap.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from torch import nn

from simcluster.rng import numpy_stream
from simcluster.workloads.optimizers import PositiveFinite, sgd
from simcluster.workloads.recipe import with_recipe
from simcluster.workloads.workload import Workload


@with_recipe
def quadratic(
    *,
    features: PositiveInt = 8,
    samples: PositiveInt = 512,
    noise: Annotated[NonNegativeFloat, Field(allow_inf_nan=False)] = 0.1,
    batch_size: PositiveInt = 16,
    learning_rate: PositiveFinite = 0.1,
    dtype: Literal["float32", "float64"] = "float32",
    data_seed: NonNegativeInt = 0,
) -> Workload:
    """Return a workload that fits *features* weights to *samples* noisy values of a linear
    function, by half the mean squared error.

    The inputs, the true weights and the noise (with standard deviation *noise*) are normal numbers
    drawn from *data_seed*. A further *samples* / 4 samples, rounded up, are held out. The full
    gradient is X^T (X w - y) / samples.
    """
    rng = numpy_stream(data_seed, "quadratic")
    inputs = rng.standard_normal((samples + -(-samples // 4), features))
    targets = inputs @ rng.standard_normal((features, 1)) + noise * rng.standard_normal((len(inputs), 1))
    kind = torch.float64 if dtype == "float64" else torch.float32
    x, y = torch.from_numpy(inputs).to(kind), torch.from_numpy(targets).to(kind)
    return Workload(
        name="quadratic",
        weights_bytes=features * kind.itemsize,
        value_free=True,
        model=lambda: nn.Linear(features, 1, bias=False, dtype=kind),
        loss=lambda outputs, targets: (outputs - targets).square().mean() / 2,
        train=(x[:samples], y[:samples]),
        test=(x[samples:], y[samples:]),
        batch_size=batch_size,
        optimizer=sgd(learning_rate),
    )
