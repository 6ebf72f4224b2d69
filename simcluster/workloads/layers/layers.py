"""A model as a list of layers with separate forward and backward passes: for pipelines, for sending gradients before
the backward pass is complete, and for weights that are present only while in use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from simcluster.errors import Problem, UsageError
from simcluster.workloads.data.samples import Samples
from simcluster.workloads.initial.deferred import allocate
from simcluster.workloads.steps import Loss, own_loss, separate

Drawing = Callable[[int], AbstractContextManager[object]]
"""Lends torch's generator to a layer that may draw, by the layer's number: a different stream at each call."""


class Layer:
    """Consecutive modules of a model as one piece of autograd, detached from the layers before and after it.

    *parameters* are the places of its trainable parameters in `Replica.parameters`. A parameter that several layers
    share is in each of them; its gradient is the sum of the gradients that they return. *number* is that of its first
    module in the model; *key* identifies the modules for code that does not compute.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        number: int,
        parameters: Sequence[tuple[int, nn.Parameter]],
        *,
        loss: Loss | None,
        wants_input_gradient: bool,
        drawing: Drawing,
        key: Hashable = None,
    ) -> None:
        self._modules, self.number = list(modules), number
        self._key = (number, len(self._modules)) if key is None else key
        self.parameters = [place for place, _ in parameters]
        self._trainable = [parameter for _, parameter in parameters]
        self._loss, self._wants_input_gradient = loss, wants_input_gradient
        self._drawing = drawing
        self._stash: dict[Hashable, tuple[Tensor, Tensor, bool]] = {}  # inputs, outputs, whether those are the loss

    @property
    def name(self) -> str:
        """ "layer N", or "layers N to M" for a merged layer."""
        last = self.number + len(self._modules) - 1
        return f"layer {self.number}" if last == self.number else f"layers {self.number} to {last}"

    @property
    def stashed(self) -> int:
        """The number of micro-batches that have gone forward but not backward: their activations are held."""
        return len(self._stash)

    def forward(self, inputs: Tensor, micro: Hashable = 0) -> Tensor:
        """Return the outputs for *inputs*; keep what `backward` needs under the name *micro*."""
        leaf, outputs = self._run(inputs, micro)
        self._stash[micro] = leaf, outputs, False
        return outputs.detach()

    def loss(self, inputs: Tensor, targets: Tensor, micro: Hashable = 0) -> float:
        """Return the mean loss of the last layer's outputs; replaces `forward` there."""
        function = self._check_has_loss()
        leaf, outputs = self._run(inputs, micro)
        loss = function(outputs, targets)
        if loss.dim() != 0:
            raise ValueError(f"the loss has shape {tuple(loss.shape)}; expected a scalar, the mean over the batch")
        self._stash[micro] = leaf, loss, True
        return loss.item()

    def backward(
        self,
        gradient: Tensor | None = None,
        micro: Hashable = 0,
        share: float = 1.0,
        sums: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor | None, list[Tensor]]:
        """Return (gradient by the inputs, gradients by *parameters*) and forget *micro*.

        *gradient* is the gradient by the outputs. After `loss`, omit it and give *share*, the micro-batch's share of
        the batch: the mean over a batch is the sum of the micro-batch means times their shares. The gradient by the
        inputs is None for the model's first layer, and where no earlier layer needs it.

        With *sums*, add the gradients by *parameters* to these instead of returning them: each as soon as it is known,
        so that they are never all in memory.
        """
        leaf, outputs, is_loss = self._take(micro)
        if is_loss:
            gradient = torch.full_like(outputs, share)
        wanted = [leaf, *self._trainable] if leaf.requires_grad else list(self._trainable)
        if gradient is None or not wanted or not outputs.requires_grad:
            return None, [torch.zeros_like(parameter) for parameter in self._trainable if sums is None]
        if sums is not None:
            return self._add_to(sums, leaf, outputs, gradient), []
        found = separate(torch.autograd.grad(outputs, wanted, gradient, allow_unused=True, materialize_grads=True))
        return (found[0], found[1:]) if leaf.requires_grad else (None, found)

    def _add_to(self, sums: Sequence[Tensor], leaf: Tensor, outputs: Tensor, gradient: Tensor) -> Tensor | None:
        """Add the gradients by the parameters to *sums*; return the one by *leaf*, if it has one."""
        for parameter, total in zip(self._trainable, sums, strict=True):
            parameter.grad = total  # which autograd adds to in place
        wanted = [leaf, *self._trainable] if leaf.requires_grad else list(self._trainable)
        try:
            torch.autograd.backward(outputs, gradient, inputs=wanted)
        finally:
            for parameter in self._trainable:
                parameter.grad = None
        below, leaf.grad = leaf.grad, None
        if not leaf.requires_grad:
            return None
        return torch.zeros_like(leaf) if below is None else below.contiguous()

    def fill(self, weights: Sequence[Tensor | list[Tensor]]) -> None:
        """Overwrite the weights of *parameters* in place; each is a tensor, or vectors to be put one after the other.

        Between forward and backward it is allowed too, but backward must see the same values as forward: autograd
        cannot check it.
        """
        for mine, given in zip(self._trainable, weights, strict=True):
            pieces = given if isinstance(given, list) else [given]
            fits = sum(map(len, given)) == mine.numel() if isinstance(given, list) else mine.shape == given.shape
            if not fits:
                found = " and ".join(str(tuple(piece.shape)) for piece in pieces)
                raise ValueError(f"{self.name}: a parameter of shape {tuple(mine.shape)}, got {found}")
            if any(piece.is_meta for piece in pieces):
                continue
            allocate(mine)
            if isinstance(given, Tensor):
                mine.data.copy_(given)
            elif not mine.is_contiguous():
                mine.data.copy_(torch.cat(given).view(mine.shape))
            else:
                torch.cat(given, out=mine.data.view(-1))

    def _run(self, inputs: Tensor, micro: Hashable) -> tuple[Tensor, Tensor]:
        self._check_new(micro)
        leaf = inputs.detach()
        # Tokens have no gradient, at whichever layer they enter.
        if self._wants_input_gradient and leaf.is_floating_point():
            leaf.requires_grad_()
        value: object = leaf
        with self._drawing(self.number):
            for module in self._modules:
                value = module(value)
        if not isinstance(value, Tensor):
            raise ValueError(
                f"{self.name} returns a {type(value).__name__}; expected one tensor, the input of the next layer"
            )
        return leaf, value

    def _take(self, micro: Hashable) -> tuple[Tensor, Tensor, bool]:
        if micro not in self._stash:
            raise ValueError(f"{self.name}: micro-batch {micro!r} has no pending forward pass")
        return self._stash.pop(micro)

    def _check_new(self, micro: Hashable) -> None:
        if micro in self._stash:
            raise ValueError(f"{self.name}: micro-batch {micro!r} already has a pending forward pass")

    def _check_has_loss(self) -> Loss:
        if self._loss is None:
            raise ValueError(f"{self.name} is not the last layer, which computes the loss")
        return self._loss


class Layers(list[Layer]):
    """The layers of a model, in order; `replica.layers()` makes them. The last one computes the loss."""

    def __init__(
        self,
        model: nn.Module,
        trainable: Sequence[nn.Parameter],
        loss: Loss,
        drawing: Drawing,
        layer: Callable[..., Layer] = Layer,
    ) -> None:
        self._modules = modules_in_order(model)
        self._loss, self._drawing, self._layer = loss, drawing, layer
        places = {id(parameter): place for place, parameter in enumerate(trainable)}
        self._parameters = [
            [(places[id(parameter)], parameter) for parameter in module.parameters() if id(parameter) in places]
            for module in self._modules
        ]
        found = {place for parameters in self._parameters for place, _ in parameters}
        names = [name_of(model, trainable[place]) for place in places.values() if place not in found]
        if names:
            what = f"none of {type(model).__name__} that has the parameter {', '.join(names)}"
            raise UsageError(Problem("model.layers", what, f"every trainable parameter in a layer: {_ADD}"))
        super().__init__(self.merged(number, number + 1) for number in range(len(self._modules)))

    def merged(self, start: int, stop: int) -> Layer:
        """Return layers *start* to *stop* - 1 as one, with a separate stash: a pipeline stage."""
        if not 0 <= start < stop <= len(self._modules):
            raise ValueError(f"layers {start} to {stop - 1} of {len(self._modules)}")
        parameters = dict(pair for part in self._parameters[start:stop] for pair in part)
        return self._layer(
            self._modules[start:stop],
            start,
            sorted(parameters.items(), key=lambda pair: pair[0]),
            loss=self._loss if stop == len(self._modules) else None,
            wants_input_gradient=any(self._parameters[:start]),
            drawing=self._drawing,
        )

    def shared(self) -> dict[int, list[int]]:
        """Return the parameters that several layers use: place in `Replica.parameters` -> numbers of the layers."""
        users: dict[int, list[int]] = {}
        for number, parameters in enumerate(self._parameters):
            for place, _ in parameters:
                users.setdefault(place, []).append(number)
        return {place: numbers for place, numbers in users.items() if len(numbers) > 1}


def modules_in_order(model: nn.Module) -> list[nn.Module]:
    """Return the modules that *model* applies in order. Raises UsageError if they are unknown.

    A Sequential lists them, and a module without children is one layer. Any other model needs `layers`, a method or an
    attribute: modules that each take the output of the one before. The first takes the model's inputs; the last returns
    what the loss takes.
    """
    layers = getattr(model, "layers", None)
    if callable(layers) and not isinstance(layers, nn.Module):
        layers = layers()
    if layers is None:
        parts = list(model.children())
        layers = parts if isinstance(model, nn.Sequential) else [] if parts else [model]
        if not layers:
            found = f"{type(model).__name__}, which does not say what its layers are"
            raise UsageError(Problem("model", found, f"an nn.Sequential, or a model with {_ADD}"))
    modules = list(layers) if isinstance(layers, (nn.Sequential, nn.ModuleList, list, tuple)) else []
    if not modules or not all(isinstance(module, nn.Module) for module in modules):
        raise UsageError(Problem("model.layers", repr(layers), "one module or more, to be applied in order"))
    for number, module in enumerate(modules):
        if number and getattr(module, "inplace", False):
            found = f"layer {number}, {module}, which overwrites what layer {number - 1} needs for its gradient"
            raise UsageError(Problem("model.layers", found, "inplace=False"))
    return modules


_ADD = "a method `layers(self) -> list[nn.Module]` that returns the modules it applies, in order"


def check_layered(loss: Loss, batch: Samples) -> None:
    """Raise UsageError if the loss of *batch* is not *loss* of the output of layers that are applied in order."""
    expected = "one tensor for the first layer and a loss function, since this algorithm uses the model layer by layer"
    if isinstance(batch.inputs, Mapping):
        raise UsageError(Problem("train", f"inputs by name: {', '.join(batch.inputs)}", expected))
    if loss is own_loss:
        raise UsageError(Problem("loss", "the model's own", expected))


def name_of(model: nn.Module, parameter: nn.Parameter) -> str:
    """Return the name of *parameter* in *model*."""
    return next(name for name, other in model.named_parameters() if other is parameter)
