"""A model as a list of layers with separate forward and backward passes.

Pipelines need layers, as do algorithms that send gradients before the backward pass is complete,
and algorithms that hold weights only while these are in use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from simcluster.errors import UsageError
from simcluster.workloads.data.samples import Samples
from simcluster.workloads.initial.deferred import allocate
from simcluster.workloads.precision import Precision, forward_in
from simcluster.workloads.steps import Loss, own_loss, separate

Drawing = Callable[[int], AbstractContextManager[object]]
"""(number of a layer) -> a context that lends torch's generator to the layer, seeded for a new
stream at each call.
"""


class Layer:
    """Consecutive modules of a model whose forward and backward passes are separate from those of
    the layers before and after.

    *parameters* holds the indices of the layer's trainable parameters in `Replica.parameters`. If
    several layers share a parameter, each of them lists its index; its gradient is the sum of the
    gradients that these layers return. *number* is the number of the layer's first module in the
    model; *key* identifies the modules for `TimingLayer`, which computes only shapes.
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
        precision: Precision = "f32",
    ) -> None:
        self._modules, self.number = list(modules), number
        self._key = (number, len(self._modules)) if key is None else key
        self.parameters = [place for place, _ in parameters]
        self._trainable = [parameter for _, parameter in parameters]
        self._loss, self._wants_input_gradient = loss, wants_input_gradient
        self._drawing, self._precision = drawing, precision
        # Name of a micro-batch -> (its inputs, its outputs, whether the outputs are the loss).
        self._stash: dict[Hashable, tuple[Tensor, Tensor, bool]] = {}

    @property
    def name(self) -> str:
        """ "layer N", or "layers N to M" for a merged layer."""
        last = self.number + len(self._modules) - 1
        return f"layer {self.number}" if last == self.number else f"layers {self.number} to {last}"

    def forward(self, inputs: Tensor, micro: Hashable = 0) -> Tensor:
        """Return the outputs for *inputs*, and stash the activations for `backward` under the name
        *micro*.
        """
        leaf, outputs = self._run(inputs, micro)
        self._stash[micro] = leaf, outputs, False
        return outputs.detach()

    def loss(self, inputs: Tensor, targets: Tensor, micro: Hashable = 0) -> float:
        """Return the mean loss for *inputs*, and stash the activations for `backward` under the
        name *micro*.

        The last layer uses this instead of `forward`.
        """
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
        """Return the gradients with respect to (the inputs, *parameters*), and drop the activations
        stashed under *micro*.

        *gradient* is the gradient with respect to the outputs. After `loss`, omit it and pass
        *share*, the micro-batch's share of the batch: the mean over a batch is the sum of the
        micro-batches' means times their shares. The gradient with respect to the inputs is None for
        the model's first layer, and if no earlier layer needs it.

        If *sums* is set, add the gradients with respect to *parameters* to its tensors and return
        an empty list in their place. Each gradient is added as soon as it is computed, so that the
        gradients are never all in memory.
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
        """Add the gradients with respect to the parameters to *sums*.

        Return the gradient with respect to *leaf*, or None if *leaf* needs none.
        """
        for parameter, total in zip(self._trainable, sums, strict=True):
            parameter.grad = total  # autograd adds to an existing .grad in place
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
        """Overwrite the weights of *parameters* in place.

        Each entry of *weights* is a tensor, or a list of vectors to concatenate.

        This is also allowed between forward and backward. But the backward pass must see the same
        values as the forward pass, which autograd cannot check.
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
        # Integer inputs, such as tokens, have no gradient in any layer.
        if self._wants_input_gradient and leaf.is_floating_point():
            leaf.requires_grad_()
        value: object = leaf
        with self._drawing(self.number), forward_in(self._precision, leaf.device):
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
        self._loss = loss
        self._drawing = drawing
        self._layer = layer
        self._places: dict[int, dict[int, int]] = {}
        places = {id(parameter): place for place, parameter in enumerate(trainable)}
        self._parameters = [
            [(places[id(parameter)], parameter) for parameter in module.parameters() if id(parameter) in places]
            for module in self._modules
        ]
        found = {place for parameters in self._parameters for place, _ in parameters}
        names = [name_of(model, trainable[place]) for place in places.values() if place not in found]
        if names:
            what = f"none of {type(model).__name__} that has the parameter {', '.join(names)}"
            raise UsageError("model.layers", what, f"every trainable parameter in a layer: {_ADD}")
        super().__init__(self.merged(number, number + 1) for number in range(len(self._modules)))

    def merged(self, start: int, stop: int) -> Layer:
        """Return layers *start* to *stop* - 1 merged into one layer with a separate stash, for a
        pipeline stage.
        """
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

    @property
    def modules(self) -> list[nn.Module]:
        """The model's modules, in the order of the layers."""
        return self._modules

    def inside(self, number: int, name: str) -> Layer:
        """Return the module *name* of layer *number* as a layer of its own."""
        module = self._modules[number].get_submodule(name)
        known = self.places_in(number)
        found = [(known[id(own)], own) for own in module.parameters() if id(own) in known]
        given = {"loss": None, "wants_input_gradient": True, "drawing": self._drawing, "key": (number, name)}
        return self._layer([module], number, found, **given)

    def places_in(self, number: int) -> dict[int, int]:
        """Return id of a parameter of layer *number* -> its index in `Replica.parameters`."""
        if number not in self._places:
            self._places[number] = {id(parameter): place for place, parameter in self._parameters[number]}
        return self._places[number]

    def shared(self) -> dict[int, list[int]]:
        """Return index in `Replica.parameters` -> numbers of the layers that use the parameter, for
        parameters that several layers share.
        """
        users: dict[int, list[int]] = {}
        for number, parameters in enumerate(self._parameters):
            for place, _ in parameters:
                users.setdefault(place, []).append(number)
        return {place: numbers for place, numbers in users.items() if len(numbers) > 1}


def modules_in_order(model: nn.Module) -> list[nn.Module]:
    """Return the modules that *model* applies in order. Raise UsageError if they are unknown.

    A Sequential lists its modules, and a module without children is one layer. Any other model
    needs `layers`, a method or an attribute that lists its modules. The first module takes the
    model's inputs, each later module takes the output of the module before it, and the loss takes
    the output of the last one.
    """
    layers = getattr(model, "layers", None)
    if callable(layers) and not isinstance(layers, nn.Module):
        layers = layers()
    if layers is None:
        parts = list(model.children())
        layers = parts if isinstance(model, nn.Sequential) else [] if parts else [model]
        if not layers:
            found = f"{type(model).__name__}, which does not say what its layers are"
            raise UsageError("model", found, f"an nn.Sequential, or a model with {_ADD}")
    modules = list(layers) if isinstance(layers, (nn.Sequential, nn.ModuleList, list, tuple)) else []
    if not modules or not all(isinstance(module, nn.Module) for module in modules):
        raise UsageError("model.layers", repr(layers), "one module or more, to be applied in order")
    for number, module in enumerate(modules):
        if number and getattr(module, "inplace", False):
            found = f"layer {number}, {module}, which overwrites what layer {number - 1} needs for its gradient"
            raise UsageError("model.layers", found, "inplace=False")
    return modules


_ADD = "a method `layers(self) -> list[nn.Module]` that returns the modules it applies, in order"


def check_layered(loss: Loss, batch: Samples) -> None:
    """Raise UsageError unless the layers of a model can compute *loss* of *batch* when applied in
    order.
    """
    expected = "one tensor for the first layer and a loss function, since this algorithm uses the model layer by layer"
    if isinstance(batch.inputs, Mapping):
        raise UsageError("train", f"inputs by name: {', '.join(batch.inputs)}", expected)
    if loss is own_loss:
        raise UsageError("loss", "the model's own", expected)


def name_of(model: nn.Module, parameter: nn.Parameter) -> str:
    """Return the name of *parameter* in *model*."""
    return next(name for name, other in model.named_parameters() if other is parameter)
