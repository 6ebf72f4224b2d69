"""The running statistics of a model: the floating-point buffers that a forward pass changes in
training.

For example, a batch norm has running statistics, but a mask or a table of positions is not one.
They are found by watching operators, so tensors need no values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from simcluster.workloads.data.samples import Batch
from simcluster.workloads.operator_watch import OperatorWatch
from simcluster.workloads.steps import outputs_of

_TRAINING = ("training", "train", "use_input_stats")


class WriteWatch(OperatorWatch):
    """A watch that notes the storages that operators write to while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.written: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | (kwargs or {})
        # The schema of a batch norm's operator does not declare that it writes to the running
        # statistics.
        updates = "batch_norm" in str(func) and any(given.get(name) for name in _TRAINING)
        for argument in func._schema.arguments:
            writes = argument.alias_info is not None and argument.alias_info.is_write
            tensor = given.get(argument.name)
            if isinstance(tensor, Tensor) and (writes or (updates and argument.name.startswith("running"))):
                self.written.add(tensor.untyped_storage()._cdata)
        return func(*args, **(kwargs or {}))


def floating_buffers(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}


def running_buffers(model: nn.Module, batch: Batch) -> list[str]:
    """Return the names of *model*'s running statistics, the buffers that a forward pass of *batch*
    changes.
    """
    before = floating_buffers(model)
    with torch.no_grad(), WriteWatch() as watch:
        outputs_of(model, batch.inputs)
    after = floating_buffers(model)
    return [
        name
        for name, buffer in before.items()
        if name in after and (after[name] is not buffer or buffer.untyped_storage()._cdata in watch.written)
    ]
