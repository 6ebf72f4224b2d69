"""Replacements on the CPU for parts of torch that scripts use with CUDA, such as model wrappers,
device meshes, autocast and gradient scalers.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from simcluster.scripts.rank.node_link import note_once
from simcluster.scripts.rank.replacements import around

CPU = torch.device("cpu")


def on_cpu(device: Any) -> Any:
    """Return the CPU if *device* is called cuda; otherwise return *device* unchanged."""
    if isinstance(device, torch.device):
        return CPU if device.type == "cuda" else device
    if isinstance(device, str) and device.partition(":")[0] == "cuda":
        return "cpu"
    return device


def number_on_cpu(device: Any) -> Any:
    """Return the CPU if *device* is called cuda or is a device number; otherwise return it
    unchanged.
    """
    return CPU if type(device) is int else on_cpu(device)


def take_over_training() -> None:
    """Replace the parts of torch that refuse to work without CUDA."""
    _replace_arguments(DistributedDataParallel, device_ids=lambda _: None, output_device=lambda _: None)
    _replace_arguments(FullyShardedDataParallel, device_id=lambda _: CPU)
    nn.SyncBatchNorm.forward = synchronized_forward
    DistributedDataParallel._passing_sync_batchnorm_handle = lambda self, module: None
    _replace_arguments(DeviceMesh, device_type=_mesh_on_cpu)
    _replace_arguments(torch.amp.autocast_mode.autocast, device_type=on_cpu)
    _replace_arguments(torch.amp.GradScaler, device=on_cpu)
    torch.cuda.amp.autocast = _autocast
    torch.cuda.amp.GradScaler = functools.partial(torch.amp.GradScaler, "cpu")
    torch.compile, torch.Generator = _as_it_is, CpuGenerator
    register_sharding(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default)(_placements)
    register_sharding(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default)(_placements)

    @around(torch, "load")
    def load(real: Any, file: Any, map_location: Any = "cpu", **how: Any) -> Any:
        if isinstance(map_location, dict):
            map_location = {key: on_cpu(value) for key, value in map_location.items()}
        return real(file, map_location=on_cpu(map_location), **how)

    @around(torch._C._nn, "_parse_to")
    def parse_to(parse: Any, *args: Any, **how: Any) -> Any:
        named = {name: number_on_cpu(value) if name == "device" else value for name, value in how.items()}
        return parse(*map(number_on_cpu, args), **named)


class CpuGenerator(torch.Generator):
    """`torch.Generator`, made on the CPU whatever the device."""

    def __new__(cls, device: Any = CPU) -> CpuGenerator:
        return super().__new__(cls, number_on_cpu(device))  # type: ignore[call-arg]


def _autocast(enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> torch.autocast:
    return torch.autocast("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def _replace_arguments(kind: Any, **changes: Callable[[Any], Any]) -> None:
    """Make the constructor of class *kind* apply *changes*, which map an argument's name to a
    function of its value.
    """
    signature = inspect.signature(kind.__init__)

    @around(kind, "__init__")
    def init(real: Any, *args: Any, **how: Any) -> None:
        given = signature.bind(*args, **how)
        given.apply_defaults()
        for name, change in changes.items():
            given.arguments[name] = change(given.arguments[name])
        real(*given.args, **given.kwargs)


def _mesh_on_cpu(device_type: str) -> Any:
    if device_type == "cuda":
        note_once("calls of a mesh of cuda are waited for where they are made; GPUs overlap some, as FSDP asks them to")
    return on_cpu(device_type)


def _as_it_is(model: Any = None, **_: Any) -> Any:
    """Replace torch.compile: return *model* unchanged.

    Print a note the first time, since the simulator counts the operators of an uncompiled model.
    """
    note_once("torch.compile passes through: the simulator counts operators one by one")
    return _as_it_is if model is None else model


def _placements(*args: Any, **_: Any) -> Any:
    """Return the ways to place attention on several ranks: replicated, or split by samples or by
    heads.

    GPUs allow the same ways, but torch has no rule for CPUs.
    """
    # The backward pass has at least 6 arguments.
    tensors, results = (6, 3) if len(args) >= 6 else (3, 2)
    return [([p] * results, [p] * tensors + [None] * (len(args) - tensors)) for p in (Replicate(), Shard(0), Shard(1))]


def synchronized_forward(self: Any, input: Tensor) -> Any:
    """Replace the forward pass of SyncBatchNorm, for *input* of shape (N, C, ...).

    In training, normalise by the mean and variance over the batches of all ranks, and update the
    running mean and variance.
    """
    group = self.process_group or (dist.group.WORLD if dist.is_initialized() else None)
    if not self.training or group is None or group.size() == 1:
        return _BatchNorm.forward(self, input)
    channels = input.shape[1]
    over = [0, *range(2, input.dim())]
    rows = input.new_full((1,), input.numel() / channels)
    sums = all_reduce(torch.cat([input.sum(over), input.square().sum(over), rows]), "sum", group)
    mean = sums[:channels] / sums[-1]
    variance = sums[channels:-1] / sums[-1] - mean.square()
    if self.track_running_stats:
        self.num_batches_tracked.add_(1)
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        with torch.no_grad():
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * (sums[-1] / (sums[-1] - 1)), momentum)
    shape = (1, channels, *[1] * (input.dim() - 2))
    normal = (input - mean.view(shape)) * torch.rsqrt(variance + self.eps).view(shape)
    if self.affine:
        normal = normal * self.weight.view(shape) + self.bias.view(shape)
    return normal
