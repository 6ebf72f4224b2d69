"""The accelerators of this machine, as torch finds them."""

from __future__ import annotations

from collections.abc import Mapping


def accelerators_here() -> dict[str, int]:
    """Return kind -> number of devices of this machine.

    If the driver can count devices without initialising one, none is initialised, so that a later
    fork is still safe.
    """
    import torch

    found = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    return {kind: number for kind, number in found.items() if number}


def missing(compute: str, there: Mapping[str, int]) -> str:
    """Return the values of `compute` that are valid on a machine with the accelerators *there*.

    If *compute* is one of them, return "".
    """
    kind, _, index = compute.partition(":")
    if kind in ("cpu", "auto") or int(index or 0) < there.get(kind, 0):
        return ""
    if not there:
        return "cpu or auto: torch finds no accelerator there"
    counted = [f"{kind}:0 to {kind}:{number - 1}" if number > 1 else kind for kind, number in there.items()]
    return f"cpu, auto or what torch finds there: {', '.join(counted)}"
