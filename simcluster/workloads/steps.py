"""The two halves of a training step: the gradients of a batch, and the optimizer step.

Neither half branches on values, so both also work on fake tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from simcluster.errors import UsageError
from simcluster.workloads.data.samples import Batch
from simcluster.workloads.optimizers import MakeOptimizer, explain_overflow
from simcluster.workloads.precision import Precision, forward_in
from simcluster.workloads.schedules import advance

Loss = Callable[[Any, Tensor], Tensor]
"""(outputs, targets) -> loss, a scalar. It is a mean over the batch, so that averaged gradients
equal those of joined batches.
"""


def trainable_of(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return (name, parameter) for each trainable parameter of *model*, in order.

    Raise UsageError if there are none.
    """
    trainable = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if not trainable:
        raise UsageError("model", "no trainable parameter", "at least one")
    return trainable


def own_loss(outputs: Any, _: Tensor) -> Tensor:
    """Return the loss that a model has computed by itself: *outputs*.loss, or the entry "loss" if
    *outputs* is a mapping. Raise UsageError if there is none.
    """
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if not isinstance(loss, Tensor):
        found = f"None, and a model that returns a {type(outputs).__name__} without a loss"
        raise UsageError("loss", found, "a function, loss(outputs, targets); or a model whose outputs have .loss")
    return loss


def outputs_of(model: Callable[..., Any], inputs: Any) -> Any:
    """Return the outputs of *model* for *inputs*.

    If *inputs* is a mapping, its entries are passed as keyword arguments.
    """
    return model(**inputs) if isinstance(inputs, Mapping) else model(inputs)


def loss_of(loss: Loss, outputs: Any, targets: Tensor) -> Tensor:
    """Return the value of *loss* for a model's *outputs*. Raise ValueError if it is not a
    scalar.
    """
    try:
        value = loss(outputs, targets)
    except TypeError as error:
        # Change the message but keep the traceback, which shows the user's loss.
        if not isinstance(outputs, Tensor):
            hint = "write loss=None if it computes its own loss, as those of transformers do"
            error.args = (f"{error}; the model returns a {type(outputs).__name__}: {hint}",)
        raise
    if value.dim() != 0:
        raise ValueError(f"the loss has shape {tuple(value.shape)}; expected a scalar, the mean over the batch")
    return value


def differentiate(
    model: nn.Module, loss_function: Loss, parameters: list[nn.Parameter], batch: Batch, precision: Precision = "f32"
) -> tuple[Tensor, Sequence[Tensor]]:
    """Return (the loss of *batch*, its gradients with respect to *parameters*).

    The gradients may share memory. See `separate`.
    """
    with forward_in(precision, parameters[0].device):
        outputs = outputs_of(model, batch.inputs)
    loss = loss_of(loss_function, outputs, batch.targets)
    return loss, torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)


def separate(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return *gradients*, each contiguous and in separate memory.

    Autograd may return one tensor twice (for a + b), or one number expanded to a whole tensor (for
    a.sum()).
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
    step: int = 1,
    batches: int = 1,
    of: int = 1,
) -> None:
    """Take one step of *optimizer* with *gradients*, scaled down to *clip_norm* if their joint norm
    exceeds it.

    *step* is the number of this step, for errors. *batches* and *of* are those of `advance`.

    Raise OverflowError if a setting exceeds the
    range of the parameters' dtype.
    """
    if clip_norm is not None:
        gradients = _clip(gradients, clip_norm)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    try:
        optimizer.step()
    except RuntimeError as error:
        explain_overflow(error, optimizer, parameters, step)
        raise
    advance(optimizer, batches, of)
    for parameter in parameters:
        parameter.grad = None


def rehearsed(
    parameters: Sequence[Tensor], make_optimizer: MakeOptimizer, clip_norm: float | None
) -> tuple[list[nn.Parameter], torch.optim.Optimizer, Callable[[], None]]:
    """Return (copies of *parameters*, their optimizer, a function that takes another step).

    The optimizer has already taken one step, which sets up its state; all later steps cost the
    same.
    """
    copies = [nn.Parameter(parameter.detach().clone()) for parameter in parameters]
    optimizer, gradients = make_optimizer(copies), [torch.ones_like(copy) for copy in copies]
    step = partial(take_step, optimizer, copies, gradients, clip_norm)
    step()
    return copies, optimizer, step


def _clip(gradients: Sequence[Tensor], clip_norm: float) -> Sequence[Tensor]:
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients]))
    # Always scale, so that a step costs the same for all gradients. A scale of 1 changes no bit.
    scale = torch.clamp(clip_norm / norm, max=1.0)
    return [gradient * scale for gradient in gradients]
