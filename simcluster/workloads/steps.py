"""The two halves of a training step: gradients of a batch, and what the optimizer makes of them.

Neither half depends on a value, so both work on fake tensors, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from simcluster.errors import Problem, UsageError
from simcluster.workloads.samples import Batch

Loss: TypeAlias = Callable[[Any, Tensor], Tensor]
"""loss(model(inputs), targets): a scalar, the mean over the batch: then mean gradients join batches."""


def trainable_of(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The trainable parameters of *model* and their names, in its own order. Raises UsageError if there are none."""
    trainable = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if not trainable:
        raise UsageError(Problem("model", "no trainable parameter", "at least one"))
    return trainable


def differentiate(
    model: nn.Module, loss_function: Loss, parameters: list[nn.Parameter], batch: Batch
) -> tuple[Tensor, Sequence[Tensor]]:
    """(the loss of *batch*, its gradient by each of *parameters*: as autograd hands them out)."""
    loss = loss_function(model(batch.inputs), batch.targets)
    if loss.dim() != 0:
        raise ValueError(f"the loss has shape {tuple(loss.shape)}; expected a scalar, the mean over the batch")
    return loss, torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)


def separate(gradients: Sequence[Tensor]) -> list[Tensor]:
    """*gradients*, contiguous, each in memory of its own: autograd may hand out one tensor twice (of a + b), or one
    number for a whole tensor (of a.sum()).
    """
    shared = len({gradient.data_ptr() for gradient in gradients}) < len(gradients)
    if shared or not all(gradient.is_contiguous() for gradient in gradients):
        return [gradient.clone(memory_format=torch.contiguous_format) for gradient in gradients]
    return list(gradients)


def take_step(
    optimizer: torch.optim.Optimizer,
    parameters: list[nn.Parameter],
    gradients: Sequence[Tensor],
    clip_norm: float | None,
) -> None:
    """One step of *optimizer* with *gradients*, scaled down to *clip_norm* if their joint norm is above it."""
    if clip_norm is not None:
        gradients = _clip(gradients, clip_norm)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()
    for parameter in parameters:
        parameter.grad = None


def _clip(gradients: Sequence[Tensor], clip_norm: float) -> Sequence[Tensor]:
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients]))
    # Scaled by 1, which changes no bit, rather than left alone: so a step costs the same whatever the gradients are.
    scale = torch.clamp(clip_norm / norm, max=1.0)
    return [gradient * scale for gradient in gradients]
