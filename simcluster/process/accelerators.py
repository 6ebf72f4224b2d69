"""The accelerators of this machine, as torch finds them."""

from __future__ import annotations

from collections.abc import Mapping


def accelerators_here() -> dict[str, int]:
    """Return the number of devices by kind. It starts none of them, so a fork stays safe where the driver can count."""
    import torch

    found = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    return {kind: number for kind, number in found.items() if number}


def missing(compute: str, there: Mapping[str, int]) -> str:
    """Return what to expect instead of *compute* on a machine with the accelerators *there*; "" if it has it."""
    kind, _, index = compute.partition(":")
    if kind in ("cpu", "auto") or int(index or 0) < there.get(kind, 0):
        return ""
    if not there:
        return "cpu or auto: torch finds no accelerator there"
    counted = [f"{kind}:0 to {kind}:{number - 1}" if number > 1 else kind for kind, number in there.items()]
    return f"cpu, auto or what torch finds there: {', '.join(counted)}"
