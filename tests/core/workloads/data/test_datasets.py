"""Data in all forms that people bring becomes two tensors, or is refused."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

from simcluster.errors import UsageError
from simcluster.workloads.data.datasets import as_samples
from simcluster.workloads.data.samples import Samples

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


def both(items):
    return torch.stack([item for item, _ in items]), torch.tensor([target for _, target in items])


@pytest.mark.parametrize(
    "data",
    [
        Samples(INPUTS, TARGETS),
        (INPUTS, TARGETS),
        TensorDataset(INPUTS, TARGETS),
        Pairs(),
        list(Pairs()),
        [(row.tolist(), target) for row, target in Pairs()],
        [(row.numpy(), target) for row, target in Pairs()],
        DataLoader(Pairs(), batch_size=4, shuffle=True),
        DataLoader(Pairs(), batch_size=None),
        DataLoader(TensorDataset(INPUTS, TARGETS)),
        DataLoader(Pairs(), collate_fn=both),
    ],
)
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
        ([(INPUTS[0], 1), (INPUTS[1][:1], 0)], r"the input of item 1 has the shape \(1,\), and that of item 0 has"),
        ([(INPUTS[0], 1), INPUTS[1]], "item 1 is a Tensor, expected|item 1 is a Tensor"),
        ([{"a": 1, "labels": 2}, {"a": 1}], "item 1 has a, and item 0 has a, labels"),
        ([{"text": "a", "labels": 1}], "'text' of item 0 is a str"),
        ({"a": INPUTS}, "inputs, and targets called labels or label"),
        ({"a": INPUTS, "labels": [1, 2]}, "labels: list"),
        ({"a": INPUTS, "labels": TARGETS[:2]}, "as many inputs as targets"),
        ({}, "no field"),
        (DataLoader(Pairs(), sampler=WeightedRandomSampler([1.0] * 6, 6)), "loader.dataset, or a DataLoader without"),
        (DataLoader(Pairs(), collate_fn=len), "a collate_fn that returns a int"),
    ],
)
def test_what_is_not_a_data_set_is_refused_with_its_key_and_reason(data, reason):
    with pytest.raises(UsageError, match=reason) as caught:
        as_samples(data, "test")
    assert caught.value.problems[0].key == "test"


FIELDS = [{"a": [1.0, 2.0], "labels": 1}, {"a": [3.0, 4.0], "labels": 0}]


@pytest.mark.parametrize(
    "data", [FIELDS, {"a": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "labels": torch.tensor([1, 0])}]
)
def test_dicts_become_tensors_by_name_and_the_labels_are_the_targets(data):
    apart = as_samples(data)
    assert list(apart.inputs) == ["a"]
    assert apart.inputs["a"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert apart.targets.tolist() == [1, 0]
    # A model with its own loss takes them all, and they are kept once.
    whole = as_samples(data, own_loss=True)
    assert list(whole.inputs) == ["a", "labels"]
    assert whole.inputs["labels"] is whole.targets
    assert len(whole.tensors) == 2


def test_a_collate_function_pads_all_items_to_one_shape():
    def padded(items):
        tokens = [torch.tensor(item["tokens"]) for item in items]
        labels = torch.tensor([item["labels"] for item in items])
        return {"tokens": torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True), "labels": labels}

    ragged = [{"tokens": [1], "labels": 0}, {"tokens": [1, 2, 3], "labels": 1}]
    samples = as_samples(DataLoader(ragged, batch_size=1, collate_fn=padded))
    assert samples.inputs["tokens"].tolist() == [[1, 0, 0], [1, 2, 3]]


def test_a_message_about_many_items_is_short():
    with pytest.raises(UsageError) as caught:
        as_samples([{"text": "words", "labels": 1}] * 400)
    assert len(str(caught.value)) < 300
    with pytest.raises(UsageError) as caught:
        as_samples(tuple({"a": 1} for _ in range(400)))
    assert len(str(caught.value)) < 200
