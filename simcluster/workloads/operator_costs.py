"""Counts of the arithmetic and memory traffic of work in torch. The work's operators are watched in
a single run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from simcluster.transport import Cost
from simcluster.workloads.operator_watch import OperatorWatch, tensors_in

_aten = torch.ops.aten


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    # The first product makes the scores, the second the weighted values; shapes are (..., length,
    # width).
    rows, width = math.prod(query.shape[:-1]), query.shape[-1]
    return 2 * rows * key.shape[-2] * (width + value.shape[-1])


def _attention_backward(_: Tensor, query: Tensor, key: Tensor, value: Tensor, *__: Any, **___: Any) -> int:
    # The backward pass has five products where the forward pass has two, since it computes the
    # scores again (Dao et al. 2022).
    rows, width = math.prod(query.shape[:-1]), query.shape[-1]
    return 2 * rows * key.shape[-2] * (3 * width + 2 * value.shape[-1])


def _recurrent(sequence: Tensor, from_input: Tensor, from_hidden: Tensor, *_: Any, **__: Any) -> int:
    # One layer in one direction applies both matrices at every position of the sequence (length,
    # batch, width).
    return 2 * (sequence.numel() // sequence.shape[-1]) * (from_input.numel() + from_hidden.numel())


# The operators that run on CPUs but are missing from torch's own table.
_more_operators: dict[Any, Callable[..., int]] = {
    _aten.dot: lambda a, _: 2 * a.numel(),
    _aten.mv: lambda matrix, _: 2 * matrix.numel(),
    _aten.addmv: lambda _, matrix, __, **___: 2 * matrix.numel(),
    _aten.mkldnn_rnn_layer: _recurrent,
    _aten.mkldnn_rnn_layer_backward: lambda *args, **kwargs: 2 * _recurrent(*args, **kwargs),
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}


class OperatorCount(OperatorWatch):
    """A count of the torch operators that this thread runs while it is entered.

    *matrix_flops*: the FLOPs of matrix products, convolutions, attention and recurrent layers, by
    torch's own table and a few additions (a multiplication and an addition are two FLOPs).
    *elements*: the number of elements that all other operators write. *moved_bytes*: the memory
    traffic of a device without fusion and without a cache, where each operator reads its inputs and
    writes its outputs once; views move nothing. *operators*: the number of operators, without
    views.

    torch's FlopCounterMode is not used: its hooks are global and would see the modules of other
    threads.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.matrix_flops = 0
        self.elements = 0
        self.moved_bytes = 0
        self.operators = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        # In the namespace prim, torch asks a fake tensor for its device, which is no work.
        if func.namespace == "prim" or func.is_view:
            return out
        flops, moved_bytes = call_cost(func.overloadpacket, args, kwargs, out)
        self.operators += 1
        self.moved_bytes += moved_bytes
        if flops is None:
            self.elements += sum(tensor.numel() for tensor in _tensors_in(func.overloadpacket, out))
        else:
            self.matrix_flops += flops
        return out


def call_cost(operator: Any, args: Any, kwargs: dict[str, Any], out: Any) -> tuple[int | None, int]:
    """Return (FLOPs of a call, bytes that it reads and writes). The FLOPs are None if the operator
    contains no products.
    """
    tensors = _tensors_in(operator, (args, kwargs, out))
    moved_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    if operator in flop_registry:
        return int(flop_registry[operator](*args, **kwargs, out_val=out)), moved_bytes
    count = _more_operators.get(operator)
    return None if count is None else count(*args, **kwargs), moved_bytes


def _tensors_in(operator: Any, values: Any) -> list[Tensor]:
    """Return the tensors among *values*, except for the workspace of a recurrent layer on the CPU,
    whose size varies.
    """
    tensors = tensors_in(values)
    if operator in (_aten.mkldnn_rnn_layer, _aten.mkldnn_rnn_layer_backward):
        return [tensor for tensor in tensors if tensor.dtype is not torch.uint8]
    return tensors


def kind_of(workload: str, what: str) -> str:
    """Return the `Cost.kind` of work on *workload*.

    It is empty if the workload has no name, since no profile can then refer to it.
    """
    return f"{workload}/{what}" if workload else ""


def matrix_cost(work: Callable[[], Any], kind: str = "") -> Cost:
    """Run *work* and return its cost. Only matrix products, convolutions, attention and recurrent
    layers count as arithmetic.
    """
    with OperatorCount() as count:
        work()
    return Cost(float(count.matrix_flops), float(count.moved_bytes), count.operators, kind)


def elementwise_cost(work: Callable[[], Any], kind: str = "") -> Cost:
    """Run *work* and return its cost, with one FLOP per element that an operator writes. This suits
    optimizers.
    """
    with OperatorCount() as count:
        work()
    return Cost(float(count.matrix_flops + count.elements), float(count.moved_bytes), count.operators, kind)
