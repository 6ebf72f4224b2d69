"""Evaluation of a model on held-out samples."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from simcluster.compute import HOST
from simcluster.workloads.global_rng import borrowed, drawn_from
from simcluster.workloads.samples import Samples
from simcluster.workloads.steps import Loss

EVALUATION_BATCH = 1024


class Untrained:
    """Copies of all of *model* that the optimizer does not change: buffers and frozen parameters."""

    def __init__(self, model: nn.Module) -> None:
        self._buffers = [buffer.detach().clone() for buffer in model.buffers()]
        self._parameters = [given if given.requires_grad else given.clone() for given in model.parameters()]

    def buffers(self) -> Iterator[Tensor]:
        return iter(self._buffers)

    def parameters(self) -> Iterator[Tensor]:
        """Return all parameters in order; those that are trained are the live ones."""
        return iter(self._parameters)


class Evaluator:
    """Evaluates weights in *model*, a model apart from the one that trains: that may be in a forward pass.

    Threads take turns. torch's global generator is borrowed until an evaluation has shown that it draws nothing, since
    training in another thread may need it.
    """

    def __init__(self, model: nn.Module, loss_function: Loss, samples: Samples, device: torch.device = HOST) -> None:
        self._model, self._loss, self._samples, self._device = model.eval().to(device), loss_function, samples, device
        self._lock, self._draws = threading.Lock(), True

    def evaluate(self, source: nn.Module | Untrained, trainable: Sequence[Tensor]) -> dict[str, float]:
        """Evaluate *trainable* with the buffers and frozen parameters of *source*; see `evaluated`."""
        with self._lock, torch.no_grad(), borrowed(0, device=self._device) if self._draws else nullcontext():
            copy_into(self._model, source, trainable)
            before = drawn_from(self._device) if self._draws else None
            result = evaluated(self._model, self._loss, self._samples, self._device)
            if before is not None:
                self._draws = not torch.equal(before, drawn_from(self._device))
        return result


def copy_into(model: nn.Module, source: nn.Module | Untrained, trainable: Sequence[Tensor]) -> None:
    """Copy buffers and frozen parameters from *source*, and *trainable* in place of the others."""
    for mine, given in zip(model.buffers(), source.buffers(), strict=True):
        mine.copy_(given)
    rest = iter(trainable)
    for mine, given in zip(model.parameters(), source.parameters(), strict=True):
        mine.copy_(next(rest) if given.requires_grad else given)


def evaluated(model: nn.Module, loss_function: Loss, samples: Samples, device: torch.device = HOST) -> dict[str, float]:
    """Return {"loss", "accuracy"} of *model*, which is on *device*; only the loss if the targets are not classes."""
    loss_sum, correct = 0.0, 0
    classes = samples.targets.dim() == 1 and not samples.targets.is_floating_point()
    for start in range(0, len(samples), EVALUATION_BATCH):
        targets = samples.targets[start : start + EVALUATION_BATCH].to(device)
        outputs = model(samples.inputs[start : start + EVALUATION_BATCH].to(device))
        loss_sum += loss_function(outputs, targets).item() * len(targets)
        classes = classes and isinstance(outputs, Tensor) and outputs.dim() == 2
        if classes:
            correct += int((outputs.argmax(1) == targets).sum())
    result = {"loss": loss_sum / len(samples)}
    if classes:
        result["accuracy"] = correct / len(samples)
    return result
