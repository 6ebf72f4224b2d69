"""The device that a node's `compute` names: the processor, or one of this machine's accelerators."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import torch

from simcluster.errors import Problem, UsageError

HOST: Final = torch.device("cpu")


def accelerators() -> list[torch.device]:
    """Return this machine's accelerators. The first call may initialise their driver: fork no process after it."""
    if torch.cuda.is_available():
        return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    return [torch.device("mps")] if torch.backends.mps.is_available() else []


def device_of(compute: str, environ: Mapping[str, str] = os.environ) -> torch.device:
    """Return the device for *compute*: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto` for an accelerator if there is one.

    Without an index it is the first, or under a launcher that gives every process of a machine a LOCAL_RANK, that one.
    Raise UsageError if this machine does not have it.
    """
    if compute == "cpu":
        return HOST
    there_are = accelerators()
    kind, _, index = compute.partition(":")
    found = [device for device in there_are if kind in ("auto", device.type)]
    if index:
        found = [device for device in found if str(device.index) == index]
    if not found:
        if compute == "auto":
            return HOST
        names = ", ".join(["cpu", *map(str, there_are)])
        raise UsageError(Problem("compute", repr(compute), f"auto, or one that this machine has: {names}"))
    local = environ.get("LOCAL_RANK", "")
    return found[int(local) % len(found)] if local.isdecimal() else found[0]


def name_of(device: torch.device) -> str:
    """Return what *device* is called in summaries, such as `cuda:0 (NVIDIA H200)`."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def use(device: torch.device) -> None:
    """Make *device* this thread's: in a thread that has none, cuBLAS takes one itself, with a warning."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def synchronise(device: torch.device) -> None:
    """Wait until *device* has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type != "cpu":
        torch.get_device_module(device).synchronize()
