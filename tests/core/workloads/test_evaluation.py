"""What a model makes of held-out samples: the mean over all of them, however they are taken."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from simcluster.workloads import Samples
from simcluster.workloads.evaluation import EVALUATION_BATCH, copy_into, evaluated


def test_batches_that_do_not_divide_weigh_what_they_hold() -> None:
    count = EVALUATION_BATCH + 7
    generator = torch.Generator().manual_seed(0)
    samples = Samples(torch.randn(count, 3, generator=generator), torch.randint(0, 3, (count,), generator=generator))
    found = evaluated(nn.Identity(), nn.functional.cross_entropy, samples)
    assert found["loss"] == pytest.approx(nn.functional.cross_entropy(samples.inputs, samples.targets).item(), rel=1e-5)
    assert found["accuracy"] == (samples.inputs.argmax(1) == samples.targets).sum().item() / count


def test_weights_of_one_and_buffers_and_frozen_parameters_of_another() -> None:
    mine, source = (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)) for _ in range(2))
    source[1].running_mean.fill_(3.0)
    source[0].bias.data.fill_(5.0)
    source[0].bias.requires_grad_(False)
    trainable = [torch.full_like(parameter, 7.0) for parameter in source.parameters() if parameter.requires_grad]
    with torch.no_grad():
        copy_into(mine, source, trainable)
    assert mine[1].running_mean.tolist() == [3.0, 3.0]
    assert mine[0].bias.tolist() == [5.0, 5.0]
    assert mine[0].weight.tolist() == [[7.0, 7.0], [7.0, 7.0]]
    assert mine[1].weight.tolist() == [7.0, 7.0]
