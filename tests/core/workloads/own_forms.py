"""Workloads in the forms that people bring: dicts, an iterable set, a model with a loss, a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, LinearLR, MultiStepLR, OneCycleLR, SequentialLR
from torch.utils.data import IterableDataset

from simcluster.rng import numpy_stream
from simcluster.workloads import Workload, adamw, sgd

WORDS, LENGTH, CLASSES, TEXTS = 20, 5, 3, 96


def texts(count: int = TEXTS) -> list[dict[str, Any]]:
    """Return tokenised texts as Hugging Face's datasets have them: dicts of lists and numbers."""
    rng = numpy_stream(0, "texts")
    tokens = rng.integers(0, WORDS, (count, LENGTH))
    return [
        {"input_ids": row.tolist(), "attention_mask": [1] * LENGTH, "labels": int(np.bincount(row % CLASSES).argmax())}
        for row in tokens
    ]


class Classifier(nn.Module):
    """A model with the calling convention of Hugging Face's transformers: keyword arguments in, an object out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, CLASSES)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None
    ) -> SimpleNamespace:
        embedded = self.embed(input_ids)
        weights = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        logits = self.head((embedded * weights[..., None]).sum(1) / weights.sum(1, keepdim=True))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SimpleNamespace(loss=loss, logits=logits)


def classifier(*, batch_size: int = 4) -> Workload:
    return Workload(
        model=Classifier, loss=None, train=texts(), test=texts(24), optimizer=adamw(0.05), batch_size=batch_size
    )


class Named(nn.Module):
    """A model that takes two inputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(2, CLASSES), nn.Linear(3, CLASSES)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        output: Tensor = self.left(left) * self.right(right)
        return output


def named(*, batch_size: int = 4) -> Workload:
    rng = numpy_stream(0, "named")
    train = {
        "left": torch.from_numpy(rng.standard_normal((60, 2))).float(),
        "right": torch.from_numpy(rng.standard_normal((60, 3))).float(),
        "label": torch.arange(60) % CLASSES,
    }
    loss = nn.functional.cross_entropy
    return Workload(model=Named, loss=loss, train=train, test=train, optimizer=sgd(0.1), batch_size=batch_size)


class Numbered(IterableDataset[tuple[Tensor, Tensor]]):
    """*count* samples that carry their number; a pass ends, and the next one is the same."""

    def __init__(self, count: int = 50) -> None:
        self.count = count

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for number in range(self.count):
            inputs = torch.tensor([float(number), 1.0, float(number % 7), float(number % 3)]) / 10
            yield inputs, torch.tensor(number % CLASSES)


def iterable(*, batch_size: int = 4) -> Workload:
    test = list(Numbered(30))
    loss = nn.functional.cross_entropy
    return Workload(
        model=lambda: nn.Linear(4, CLASSES), loss=loss, train=Numbered(), test=test, optimizer=sgd(0.2),
        batch_size=batch_size,
    )  # fmt: skip


SCHEDULES = {
    "exponential": lambda optimizer: ExponentialLR(optimizer, 0.7),
    "lambda": lambda optimizer: LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "milestones": lambda optimizer: MultiStepLR(optimizer, [2, 5], 0.1),
    "one_cycle": lambda optimizer: OneCycleLR(optimizer, 0.1, total_steps=100),
    "warm_up": lambda optimizer: SequentialLR(
        optimizer, [LinearLR(optimizer, 0.1, total_iters=3), ExponentialLR(optimizer, 0.8)], [3]
    ),
}


def scheduled(*, kind: str = "exponential", momentum: float = 0.5, batch_size: int = 4) -> Workload:
    rng = numpy_stream(0, "scheduled")
    inputs = torch.from_numpy(rng.standard_normal((80, 6))).float()
    return Workload(
        model=lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)),
        loss=nn.functional.cross_entropy,
        train=(inputs, torch.arange(80) % 4),
        optimizer=sgd(0.1, momentum=momentum),
        schedule=SCHEDULES[kind],
        batch_size=batch_size,
    )
