"""Layers for timing only: outputs have a shape but no values, and saved activations are only counted."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from simcluster.unknown_number import UNKNOWN
from simcluster.workloads.costs.sketch import Sketch
from simcluster.workloads.layers.layers import Layer, Layers
from simcluster.workloads.layers.tensor_shard import TensorShard


def timing_layers(sketch: Sketch) -> Layers:
    """Return the layers of a `TimingReplica`."""

    def layer(*args: Any, **kwargs: Any) -> TimingLayer:
        return TimingLayer(sketch, *args, **kwargs)

    return Layers(sketch.model, sketch.trainable, sketch.loss, lambda _: nullcontext(), layer)


def timing_shard(sketch: Sketch, size: int) -> TensorShard:
    """Return a `TimingReplica`'s shard of a tensor-parallel model: the same on each of *size* ranks."""
    share, costs = sketch.share(size)
    part = sketch.part_of(range(len(share.parameters)), share.parameters, costs)

    def layer(*args: Any, **kwargs: Any) -> TimingLayer:
        return TimingLayer(sketch, *args, **kwargs)

    return TensorShard(
        share, size, part, partial(sketch.share_costs, size), sketch.loss, lambda _: nullcontext(), layer
    )


class TimingLayer(Layer):
    """A Layer that computes only shapes, once for all nodes."""

    def __init__(self, sketch: Sketch, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sketch = sketch
        # Fake tensors work only inside their mode; meta tensors are handed out instead.
        self._shapes = [torch.empty(p.shape, dtype=p.dtype, device="meta") for p in self._trainable]

    def forward(self, inputs: Tensor, micro: Hashable = 0) -> Tensor:
        self._check_new(micro)
        outputs = self._sketch.output_of(self._modules, self._key, inputs).detach()
        self._stash[micro] = inputs, outputs, False
        return outputs

    def loss(self, inputs: Tensor, targets: Tensor, micro: Hashable = 0) -> float:
        self._check_has_loss()
        self._check_new(micro)
        self._stash[micro] = inputs, self._sketch.output_of(self._modules, self._key, inputs), True
        return UNKNOWN

    def backward(
        self, gradient: Tensor | None = None, micro: Hashable = 0, share: float = 1.0
    ) -> tuple[Tensor | None, list[Tensor]]:
        inputs, _, _ = self._take(micro)
        gradients = [torch.empty_like(parameter, device="meta") for parameter in self._shapes]
        return (inputs.detach() if self._wants_input_gradient and inputs.is_floating_point() else None), gradients
