"""A stand-in for CUDA, with which scripts that use `cuda` run in the simulator on a machine without
it.

The CPU computes, and the model of the cluster's device determines the time. A mode replaces CUDA
devices in calls of torch by the CPU. The stand-in has only the parts of torch.cuda that ordinary
training scripts use.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.overrides import TorchFunctionMode

from simcluster.scripts.rank.cuda_training import CPU, number_on_cpu, on_cpu, take_over_training
from simcluster.scripts.rank.memory_meter import MemoryMeter
from simcluster.scripts.rank.node_link import refuse

CUDA_VERSION, NCCL_VERSION = "12.8", (2, 27, 3)
"""The versions that were released with torch 2.9, for scripts that ask for them."""

_MOVES = frozenset({"to", "type"})
_STAYING = frozenset({torch.Tensor.cuda, torch.Tensor.pin_memory})
_DEVICE_LIKE = frozenset({str, int, torch.device})


@dataclass(frozen=True)
class StandInDevice:
    """The object that `torch.cuda.get_device_properties` returns."""

    name: str
    total_memory: int
    major: int = 9
    minor: int = 0
    multi_processor_count: int = 1


class CudaOnCpu(TorchFunctionMode):
    """A mode in which the CPU replaces a device called cuda, or an integer that means a device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _STAYING:
            return args[0]
        if func is torch.device:
            named = [*args, *(kwargs or {}).values()][0]
            return CPU if named != number_on_cpu(named) else func(*args, **(kwargs or {}))
        if not kwargs and not any(type(arg) in _DEVICE_LIKE for arg in args):
            return func(*args)
        args = [on_cpu(arg) for arg in args]
        if getattr(func, "__name__", "") in _MOVES and len(args) > 1:
            args[1] = number_on_cpu(args[1])
        kwargs = {key: on_cpu(value) for key, value in (kwargs or {}).items()}
        if "device" in kwargs:
            kwargs["device"] = number_on_cpu(kwargs["device"])
        return func(*args, **kwargs)


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


class StandInEvent:
    """A stand-in for `torch.cuda.Event`.

    Work on the CPU is never queued, so an event happens when it is recorded.
    """

    __init__ = synchronize = wait = _nothing
    _at_s = 0.0

    def record(self, stream: Any = None) -> None:
        self._at_s = time.perf_counter()

    def elapsed_time(self, end: StandInEvent) -> float:
        """Return the milliseconds from this event to *end*."""
        return (end._at_s - self._at_s) * 1000

    def query(self) -> bool:
        return True


class StandInStream:
    """A stand-in for `torch.cuda.Stream`. On the CPU, all work runs in the order of the calls
    anyway.
    """

    __init__ = wait_stream = wait_event = synchronize = __exit__ = _nothing

    def record_event(self, event: StandInEvent | None = None) -> StandInEvent:
        event = event or StandInEvent()
        event.record()
        return event

    query = StandInEvent.query

    def __enter__(self) -> StandInStream:
        return self


def install_cuda(device: StandInDevice, count: int, index: int, memory: MemoryMeter) -> None:
    """Make `torch.cuda` and `torch.accelerator` report *count* devices like *device*.

    This rank's device has the number *index*, and *memory* measures its tensors.
    """
    # Import this module first, since it makes lists of functions that are replaced below.
    importlib.import_module("torch._dynamo")
    of_both = {**_of_both(count), **_of_memory(device, memory)}
    vars(torch.cuda).update(of_both | _of_cuda(device, count, index))
    vars(torch.accelerator).update(of_both | _of_accelerator(index), get_memory_info=of_both["mem_get_info"])
    profiled = ("range_push", "range_pop", "mark", "range_start", "range_end")
    vars(torch.cuda.nvtx).update(dict.fromkeys(profiled, _nothing))
    torch.cuda.nccl.version = lambda: NCCL_VERSION
    torch.version.cuda = CUDA_VERSION
    dist.is_nccl_available = distributed_c10d.is_nccl_available = lambda: True
    distributed_c10d._get_default_timeout = lambda _: dist.default_pg_timeout
    take_over_training()


def _of_both(count: int) -> dict[str, Any]:
    return {
        **dict.fromkeys(("synchronize", "empty_cache", "set_stream"), _nothing),
        "is_available": lambda: True,
        "device_count": lambda: count,
        "current_stream": lambda *_, **__: StandInStream(),
    }


def _of_accelerator(index: int) -> dict[str, Any]:
    return {
        **dict.fromkeys(("set_device_index", "set_device_idx"), _nothing),
        **dict.fromkeys(("current_device_index", "current_device_idx"), lambda: index),
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "device_index": contextlib.nullcontext,
    }


def _of_memory(device: StandInDevice, memory: MemoryMeter) -> dict[str, Any]:
    """Return name -> function for the functions that report memory.

    They count the bytes of tensors as both allocated and reserved, since nothing else is reserved.
    """
    now, peak = (lambda *_, **__: memory.live_bytes), (lambda *_, **__: memory.recent_peak_bytes)

    def stats(*_: Any, **__: Any) -> dict[str, int]:
        kinds = ("allocated_bytes", "reserved_bytes", "active_bytes")
        values = (("current", memory.live_bytes), ("peak", memory.recent_peak_bytes))
        return {f"{kind}.all.{which}": value for kind in kinds for which, value in values}

    return {
        **dict.fromkeys(("memory_allocated", "memory_reserved", "memory_cached"), now),
        **dict.fromkeys(("max_memory_allocated", "max_memory_reserved", "max_memory_cached"), peak),
        **dict.fromkeys(("reset_peak_memory_stats", "reset_max_memory_allocated"), lambda *_: memory.reset_peak()),
        "mem_get_info": lambda *_: (max(0, device.total_memory - memory.live_bytes), device.total_memory),
        "memory_stats": stats,
    }


def _of_cuda(device: StandInDevice, count: int, index: int) -> dict[str, Any]:
    quiet = (
        "set_device", "init", "ipc_collect", "manual_seed", "manual_seed_all", "seed", "seed_all",
        "set_per_process_memory_fraction", "reset_accumulated_memory_stats", "set_sync_debug_mode",
    )  # fmt: skip
    return {
        **dict.fromkeys(quiet, _nothing),
        "_lazy_init": _refuse_cuda,
        "is_initialized": lambda: True,
        "current_device": lambda: index,
        "is_bf16_supported": lambda *_, **__: True,
        "get_device_properties": lambda *_: device,
        "get_device_name": lambda *_: device.name,
        "get_device_capability": lambda *_: (device.major, device.minor),
        "memory_summary": lambda *_, **__: "",
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "get_rng_state_all": lambda: [torch.get_rng_state()] * count,
        "set_rng_state_all": lambda states: torch.set_rng_state(states[index]),
        "device": contextlib.nullcontext,
        "stream": contextlib.nullcontext,
        "Stream": StandInStream,
        "Event": StandInEvent,
        "default_stream": lambda *_: StandInStream(),
    }


def _refuse_cuda() -> None:
    """Raise NotImplementedError.

    Functions of `torch.cuda` without a stand-in call this function in place of the one that starts
    a device.
    """
    caller = sys._getframe(1).f_code
    name = f"torch.cuda.{caller.co_name}" if f"{os.sep}torch{os.sep}cuda{os.sep}" in caller.co_filename else "cuda here"
    refuse(name, "the simulator computes on the CPU and knows the calls of ordinary training scripts")
