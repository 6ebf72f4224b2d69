"""Evaluation of a model on held-out samples."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from simcluster.workloads.samples import Samples
from simcluster.workloads.steps import Loss

EVALUATION_BATCH = 1024


def copy_into(model: nn.Module, source: nn.Module, trainable: Sequence[Tensor]) -> None:
    """Copy buffers and frozen parameters from *source*, and *trainable* in place of the others."""
    for mine, given in zip(model.buffers(), source.buffers(), strict=True):
        mine.copy_(given)
    rest = iter(trainable)
    for mine, given in zip(model.parameters(), source.parameters(), strict=True):
        mine.copy_(next(rest) if given.requires_grad else given)


def evaluated(model: nn.Module, loss_function: Loss, samples: Samples) -> dict[str, float]:
    """Return {"loss", "accuracy"} of *model*; only the loss if the targets are not classes."""
    loss_sum, correct = 0.0, 0
    classes = samples.targets.dim() == 1 and not samples.targets.is_floating_point()
    for start in range(0, len(samples), EVALUATION_BATCH):
        targets = samples.targets[start : start + EVALUATION_BATCH]
        outputs = model(samples.inputs[start : start + EVALUATION_BATCH])
        loss_sum += loss_function(outputs, targets).item() * len(targets)
        classes = classes and isinstance(outputs, Tensor) and outputs.dim() == 2
        if classes:
            correct += int((outputs.argmax(1) == targets).sum())
    result = {"loss": loss_sum / len(samples)}
    if classes:
        result["accuracy"] = correct / len(samples)
    return result
