"""The part of a machine on which a node computes: cpu, an accelerator by torch's name, or auto."""

from __future__ import annotations

import re
from typing import NamedTuple

from simcluster.spelling import nearest

CPU, AUTO = "cpu", "auto"
ACCELERATORS = ("cuda", "mps")
MOST_INDEX = 127
"""The largest index of a device in torch, which keeps it in a signed byte."""

_CUDA = re.compile(r"cuda:(0|[1-9][0-9]{0,2})")


def wrong_compute(value: object) -> str:
    """Return the expected values if *value* is not a valid `compute` of a node, else ""."""
    names = (CPU, *ACCELERATORS, AUTO)
    if isinstance(value, str) and value in names:
        return ""
    if isinstance(value, str) and value.lower().startswith("cuda:"):
        found = _CUDA.fullmatch(value)
        return "" if found and int(found[1]) <= MOST_INDEX else f"cuda, or cuda:0 to cuda:{MOST_INDEX}"
    if isinstance(value, str) and value.lower() in ("gpu", "nvidia", "metal"):
        return "cuda (NVIDIA), mps (Apple), or auto, which takes what is there"
    hint = nearest(value.lower(), names) if isinstance(value, str) else ""
    return hint if hint.startswith("did you mean") else "cpu, cuda, cuda:N, mps or auto"


def kind_of(compute: str) -> str:
    """Return cpu, cuda, mps or auto: *compute* without its index."""
    return compute.partition(":")[0]


class Machine(NamedTuple):
    """A machine that several nodes share.

    A thread that wakes up while all *cores* are busy waits for *wakeup_s*.
    """

    cores: int
    wakeup_s: float = 0.0
