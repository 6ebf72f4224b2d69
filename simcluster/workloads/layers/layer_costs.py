"""The forward and backward cost of each layer of a model, and the size of its output. All are
counted in one pass.

Counting does not depend on values, so it also works on fake tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from simcluster.errors import Problem, UsageError
from simcluster.transport import Cost
from simcluster.workloads.data.samples import Batch
from simcluster.workloads.global_rng import borrowed
from simcluster.workloads.layers.layers import modules_in_order
from simcluster.workloads.operator_costs import kind_of, matrix_cost
from simcluster.workloads.precision import Precision, forward_in
from simcluster.workloads.steps import Loss


@dataclass(frozen=True, slots=True)
class LayerCost:
    """The cost of one layer for one batch; *output_bytes* is the size of its output (0 for the last layer).

    Costs are counted as in `Replica.gradient_cost`. The FLOPs of all layers add up to those of the
    gradient, and layers have the gradient's kind of cost, so on a device with a measured gradient
    time each layer takes its share of that time.
    """

    forward: Cost
    backward: Cost
    output_bytes: int

    @property
    def total(self) -> Cost:
        return self.forward + self.backward


def count_layers(
    model: nn.Module, loss_function: Loss, batch: Batch, name: str = "", precision: Precision = "f32"
) -> list[LayerCost]:
    """Return the cost of each layer of *model* for *batch*. The model's buffers may change.

    Raise UsageError if the layers, applied in order, do not compute the model's output.
    """
    modules = modules_in_order(model)
    trainable = [[p for p in module.parameters() if p.requires_grad] for module in modules]
    with borrowed(0, others=True):
        loss, costs = count_modules(modules, trainable, loss_function, batch, name, precision)
    if type(loss) is Tensor and not loss.is_meta:
        with borrowed(0, others=True):
            # Gradients are enabled, as in the pass above: a loss may behave differently when they
            # are disabled.
            with forward_in(precision, loss.device):
                outputs = model(batch.inputs)
            whole = loss_function(outputs, batch.targets)
        if problem := wrong_layers(model, loss, whole):
            raise UsageError(problem)
    return costs


def wrong_layers(model: nn.Module, loss: Tensor, whole: Tensor) -> Problem | None:
    """Return a problem unless *loss*, which the layers of *model* computed, is close to *whole*,
    which the model computed.

    Without this check, a model with a forward that does more than its layers would silently be trained as
    a different model.
    """
    if torch.allclose(whole, loss, rtol=1e-4, equal_nan=True):
        return None
    kind, expected = type(model).__name__, "the modules that its forward applies, all of them and in order"
    found = f"layers of {kind} with a loss of {loss.item():.6g} where the model has {whole.item():.6g}"
    return Problem("model.layers", found, expected)


def count_modules(
    modules: Sequence[nn.Module],
    trainable: Sequence[list[nn.Parameter]],
    loss_function: Loss,
    batch: Batch,
    name: str,
    precision: Precision = "f32",
) -> tuple[Tensor, list[LayerCost]]:
    """Apply *modules* in order.

    Return (the loss, the cost of each module with its *trainable* parameters).
    """
    kind = kind_of(name, "gradient")
    value = batch.inputs
    forward = []
    passes: list[tuple[Tensor, Tensor]] = []
    for number, module in enumerate(modules):
        leaf = value.detach()
        if any(trainable[:number]) and leaf.is_floating_point():
            leaf.requires_grad_()
        outputs = leaf

        def run(number: int = number, module: nn.Module = module, leaf: Tensor = leaf) -> None:
            nonlocal outputs
            with forward_in(precision, leaf.device):
                outputs = module(leaf)
            if number == len(modules) - 1:
                outputs = loss_function(outputs, batch.targets)

        forward.append(matrix_cost(run, kind))
        passes.append((leaf, outputs))
        value = outputs.detach()
    backward = _count_backward(passes, trainable, kind)
    sizes = [outputs.nbytes for _, outputs in passes[:-1]] + [0]
    return value, [LayerCost(*counted) for counted in zip(forward, backward, sizes, strict=True)]


def count_module(module: nn.Module, inputs: Tensor, name: str) -> LayerCost:
    """Return the cost of *module* for *inputs*. Its backward pass also computes the gradient of the
    inputs.
    """
    kind, leaf = kind_of(name, "gradient"), inputs.detach().requires_grad_()
    outputs = leaf

    def run() -> None:
        nonlocal outputs
        outputs = module(leaf)

    forward = matrix_cost(run, kind)
    wanted, above = [leaf, *module.parameters()], torch.empty_like(outputs)
    backward = matrix_cost(lambda: torch.autograd.grad(outputs, wanted, above), kind)
    return LayerCost(forward, backward, outputs.nbytes)


def _count_backward(
    passes: Sequence[tuple[Tensor, Tensor]], trainable: Sequence[list[nn.Parameter]], kind: str
) -> list[Cost]:
    costs: list[Cost] = []
    gradient: Tensor | None = None
    for (leaf, outputs), parameters in zip(reversed(passes), reversed(trainable), strict=True):
        wanted = [leaf, *parameters] if leaf.requires_grad else parameters
        above, gradient = gradient, None
        if not wanted or not outputs.requires_grad or (costs and above is None):
            costs.append(Cost(0.0, kind=kind))
            continue

        def run(outputs: Tensor = outputs, wanted: list[Tensor] = wanted, above: Tensor | None = above) -> None:  # type: ignore[assignment]
            nonlocal gradient
            found = torch.autograd.grad(outputs, wanted, above, allow_unused=True, materialize_grads=True)
            gradient = found[0]

        costs.append(matrix_cost(run, kind))
    return costs[::-1]
