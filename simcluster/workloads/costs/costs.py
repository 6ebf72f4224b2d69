"""Counts what a piece of torch work asks of a device, by watching its operators once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from simcluster.transport import Cost

_aten = torch.ops.aten


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    # Scores, then weighted values; shapes are (..., length, width).
    rows, width = math.prod(query.shape[:-1]), query.shape[-1]
    return 2 * rows * key.shape[-2] * (width + value.shape[-1])


def _attention_backward(_: Tensor, query: Tensor, key: Tensor, value: Tensor, *__: Any, **___: Any) -> int:
    # Five products to the forward's two: the scores are computed again (Dao et al. 2022, FlashAttention).
    rows, width = math.prod(query.shape[:-1]), query.shape[-1]
    return 2 * rows * key.shape[-2] * (3 * width + 2 * value.shape[-1])


def _recurrent(sequence: Tensor, from_input: Tensor, from_hidden: Tensor, *_: Any, **__: Any) -> int:
    # One layer in one direction: both matrices at every place of the sequence (length, batch, width).
    return 2 * (sequence.numel() // sequence.shape[-1]) * (from_input.numel() + from_hidden.numel())


def _recurrent_backward(*args: Any, **kwargs: Any) -> int:
    return 2 * _recurrent(*args, **kwargs)


# What torch's own table leaves out and a CPU runs.
_more_operators: dict[Any, Callable[..., int]] = {
    _aten.dot: lambda a, _: 2 * a.numel(),
    _aten.mv: lambda matrix, _: 2 * matrix.numel(),
    _aten.addmv: lambda _, matrix, __, **___: 2 * matrix.numel(),
    _aten.mkldnn_rnn_layer: _recurrent,
    _aten.mkldnn_rnn_layer_backward: _recurrent_backward,
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}


class OperatorCount(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, counts this thread's torch operators.

    *matrix_flops* are those of matrix products, convolutions, attention and recurrent layers, by torch's own
    table and a few entries more (a multiply and an add are two). *elements* is the number of elements that
    all other operators wrote. *moved_bytes* is what a device without fusion and without cache moves: each
    operator reads its inputs and writes its outputs once; views move nothing. *operators* is how many there were, views
    not counted.

    This is torch's FlopCounterMode without its hooks, which are global and would see other threads' modules.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.matrix_flops = 0
        self.elements = 0
        self.moved_bytes = 0
        self.operators = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: keeping torch's compiler out would first import it, for more than a second."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func.namespace == "prim":  # a fake tensor is asked for its device: no work
            return out
        operator = func._overloadpacket
        count = flop_registry.get(operator) or _more_operators.get(operator)
        written = _tensors_in(operator, out)
        if count is not None:
            extra = {"out_val": out} if operator in flop_registry else {}
            self.matrix_flops += int(count(*args, **kwargs, **extra))
        elif not func.is_view:
            self.elements += sum(tensor.numel() for tensor in written)
        if not func.is_view:
            self.operators += 1
            read = _tensors_in(operator, (args, kwargs))
            self.moved_bytes += sum(tensor.numel() * tensor.element_size() for tensor in read + written)
        return out


def _tensors_in(operator: Any, values: Any) -> list[Tensor]:
    """The tensors among *values*, less a processor's own notes on a recurrent layer, which have no fixed size."""
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
    if operator in (_aten.mkldnn_rnn_layer, _aten.mkldnn_rnn_layer_backward):
        return [tensor for tensor in tensors if tensor.dtype is not torch.uint8]
    return tensors


def kind_of(workload: str, what: str) -> str:
    """What `Cost.kind` says of work on *workload*; of one without a name nothing, since nobody could mean it."""
    return f"{workload}/{what}" if workload else ""


def matrix_cost(work: Callable[[], Any], kind: str = "") -> Cost:
    """The cost of *work*, counting the arithmetic of matrix products, convolutions and attention only."""
    with OperatorCount() as count:
        work()
    return Cost(float(count.matrix_flops), float(count.moved_bytes), count.operators, kind)


def elementwise_cost(work: Callable[[], Any], kind: str = "") -> Cost:
    """The cost of *work*, each element that an operator writes counting as one FLOP: for optimizers."""
    with OperatorCount() as count:
        work()
    return Cost(float(count.matrix_flops + count.elements), float(count.moved_bytes), count.operators, kind)
