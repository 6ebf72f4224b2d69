"""Evaluation of a model on held-out samples."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from simcluster.compute import HOST
from simcluster.workloads.global_rng import borrowed, drawn_from
from simcluster.workloads.initial.deferred import allocate, is_present, release
from simcluster.workloads.layers.layers import modules_in_order
from simcluster.workloads.samples import Samples
from simcluster.workloads.steps import Loss, trainable_of
from simcluster.workloads.weights_file import WeightsFile

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


class ByLayer:
    """The layers of *model* applied in order; absent weights are read from *file*, each only while its layer runs."""

    def __init__(self, model: nn.Module, file: WeightsFile) -> None:
        self._modules, self._file = modules_in_order(model), file
        self._places = {id(parameter): place for place, (_, parameter) in enumerate(trainable_of(model))}

    def __call__(self, inputs: Tensor) -> Any:
        value: Any = inputs
        for module in self._modules:
            absent = [parameter for parameter in module.parameters() if not is_present(parameter)]
            for parameter in absent:
                allocate(parameter)
                self._file.read_into(self._places[id(parameter)], parameter)
            value = module(value)
            for parameter in absent:
                release(parameter)
        return value


class Evaluator:
    """Evaluates weights in *model*, a model on *device* apart from the one that trains: that may be in a forward pass.

    Threads take turns. torch's global generator is borrowed until an evaluation has shown that it draws nothing, since
    training in another thread may need it.
    """

    def __init__(self, model: nn.Module, loss_function: Loss, samples: Samples, device: torch.device = HOST) -> None:
        self._model, self._loss, self._samples, self._device = model.eval(), loss_function, samples, device
        self._lock, self._draws = threading.Lock(), True

    def evaluate(self, source: nn.Module | Untrained, trained: Sequence[Tensor] | WeightsFile) -> dict[str, float]:
        """Evaluate *trained* with the buffers and frozen parameters of *source*; see `evaluated`."""
        device = self._device
        with self._lock, torch.no_grad(), borrowed(0, device=device) if self._draws else nullcontext():
            forward: Callable[[Tensor], Any] = self._model
            if isinstance(trained, WeightsFile):
                copy_untrained(self._model, source)
                forward = ByLayer(self._model, trained)
            else:
                copy_into(self._model, source, trained)
            before = drawn_from(device) if self._draws else None
            result = evaluated(forward, self._loss, self._samples, device)
            if before is not None:
                self._draws = not torch.equal(before, drawn_from(self._device))
        return result


def copy_into(model: nn.Module, source: nn.Module | Untrained, trainable: Sequence[Tensor]) -> None:
    """Copy buffers and frozen parameters from *source*, and *trainable* in place of the others."""
    copy_untrained(model, source)
    rest = iter(trainable)
    for mine, given in zip(model.parameters(), source.parameters(), strict=True):
        if given.requires_grad:
            mine.copy_(next(rest))


def copy_untrained(model: nn.Module, source: nn.Module | Untrained) -> None:
    """Copy buffers and frozen parameters from *source*."""
    for mine, given in zip(model.buffers(), source.buffers(), strict=True):
        mine.copy_(given)
    for own, other in zip(model.parameters(), source.parameters(), strict=True):
        if not other.requires_grad:
            own.copy_(other)


def evaluated(
    model: Callable[[Tensor], Any], loss_function: Loss, samples: Samples, device: torch.device = HOST
) -> dict[str, float]:
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
