"""Find the device that a node's setting `compute` names: the CPU, or an accelerator of this
machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

from simcluster.errors import UsageError

HOST = torch.device("cpu")


def accelerators() -> list[torch.device]:
    """Return this machine's accelerators.

    The first call may initialise their driver, after which the process must not fork.
    """
    if torch.cuda.is_available():
        return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    return [torch.device("mps")] if torch.backends.mps.is_available() else []


def device_of(compute: str, environ: Mapping[str, str] = os.environ) -> torch.device:
    """Return the device for *compute*: `cpu`, `cuda`, `cuda:1`, `mps` or `auto`.

    `auto` is an accelerator if there is one, otherwise the CPU. Without an index, the index is
    LOCAL_RANK (modulo the number of devices) if a launcher has set it for this process, otherwise
    0. Raise UsageError if this machine lacks the device.
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
        raise UsageError("compute", repr(compute), f"auto, or one that this machine has: {names}")
    local = environ.get("LOCAL_RANK", "")
    return found[int(local) % len(found)] if local.isdecimal() else found[0]


def name_of(device: torch.device) -> str:
    """Return the name of *device* in summaries, such as `cuda:0 (NVIDIA H200)`."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def use(device: torch.device) -> None:
    """Make *device* the current device of this thread.

    In a thread without a current device, cuBLAS would choose one and print a warning.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)


def synchronise(device: torch.device) -> None:
    """Wait until *device* has finished all pending work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type != "cpu":
        torch.get_device_module(device).synchronize()
