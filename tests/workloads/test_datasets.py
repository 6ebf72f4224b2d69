"""Data in all forms that people bring becomes two tensors, or is refused."""

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from simcluster.errors import UsageError
from simcluster.workloads.datasets import as_samples
from simcluster.workloads.samples import Samples

INPUTS = torch.arange(12.0).reshape(6, 2)
TARGETS = torch.tensor([0, 1, 2, 0, 1, 2])


class Pairs(Dataset):
    """Items as people write them: a tensor and a plain number."""

    def __init__(self, count: int = 6, ragged: bool = False) -> None:
        self.count, self.ragged = count, ragged

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        width = index + 1 if self.ragged else 2
        return INPUTS[index][:1].expand(width) if self.ragged else INPUTS[index], int(TARGETS[index])


@pytest.mark.parametrize("data", [Samples(INPUTS, TARGETS), (INPUTS, TARGETS), TensorDataset(INPUTS, TARGETS), Pairs()])
def test_every_form_of_data_becomes_the_same_two_tensors(data):
    samples = as_samples(data)
    assert len(samples) == 6
    assert torch.equal(samples.inputs, INPUTS)
    assert torch.equal(samples.targets, TARGETS)
    assert samples.targets.dtype == torch.int64


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ((INPUTS, TARGETS[:5]), "as many inputs as targets"),
        ((INPUTS[:0], TARGETS[:0]), "found 0 samples"),
        ((INPUTS,), "two tensors"),
        ((INPUTS, TARGETS.tolist()), "two tensors"),
        (TensorDataset(INPUTS), "two tensors"),
        (Pairs(0), "found 0 samples"),
        (Pairs(ragged=True), "do not stack"),
        (iter([]), "__len__ and __getitem__"),
    ],
)
def test_what_is_not_a_data_set_is_refused_with_its_key_and_reason(data, reason):
    with pytest.raises(UsageError, match=reason) as caught:
        as_samples(data, "test")
    assert caught.value.problems[0].key == "test"
