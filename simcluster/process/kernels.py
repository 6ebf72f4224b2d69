"""The kernels that torch chooses on this machine: what they are called, and how to take the same ones everywhere."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from simcluster.errors import Problem, UsageError

PORTABLE: Final = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
"""Limits torch's own kernels, MKL and oneDNN to instructions that every x86-64 machine has. COMPATIBLE is the only
branch of MKL that is the same on other makers' processors."""

X86 = ("x86_64", "amd64")
_COMPATIBLE = 3  # MKL_CBWR_COMPATIBLE
_ALL = -1  # MKL_CBWR_ALL
_limited_here = False


def numerics(device: str = "cpu") -> dict[str, str]:
    """Return what the bits of a result depend on here: torch's build, its BLAS with the CPU, the instruction set, and
    the *device* that computes.
    """
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return {"torch": str(torch.__version__), "blas": _blas(), "cpu_capability": capability, "device": device}


def heed_portable(options: Mapping[str, Any]) -> None:
    """Limit this process, from now on, to portable kernels if *options* ask for it.

    Raises UsageError if that is impossible: on another kind of processor, or after torch has chosen its kernels.
    """
    if options.get("portable") is not True:
        return
    machine = platform.machine().lower()
    if machine not in X86:
        raise UsageError(Problem("portable", f"true on {machine}", "x86-64 on every node"))
    before = {name: os.environ.get(name) for name in PORTABLE}
    os.environ.update(PORTABLE)  # the libraries read it before their first kernel
    if not is_portable():
        for name in PORTABLE:
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if value is not None})
        settings = " ".join(f"{name}={value}" for name, value in PORTABLE.items())
        found = "true in a process in which torch has computed already"
        raise UsageError(Problem("portable", found, f"a new process, or one started with {settings}"))
    global _limited_here
    _limited_here |= before != PORTABLE


def stay_portable() -> bool:
    """Whether `heed_portable` has limited this process."""
    return _limited_here


def is_portable() -> bool:
    """Whether this process computes with portable kernels."""
    import torch

    if any(os.environ.get(name) != value for name, value in PORTABLE.items()):
        return False
    return torch.backends.cpu.get_cpu_capability() == "DEFAULT" and _branch() in (None, _COMPATIBLE)


def _branch() -> int | None:
    """The branch that MKL has been limited to; None if this torch has no MKL that can be asked."""
    import torch

    folder = Path(torch.__file__).parent / "lib"
    for file in (None, *sorted(folder.glob("*torch_cpu.*"))):
        library = ctypes.CDLL(None if file is None else str(file))
        for name in ("mkl_serv_cbwr_get", "mkl_cbwr_get"):
            if hasattr(library, name):
                return int(getattr(library, name)(_ALL))
    return None


def _blas() -> str:
    import torch

    built = torch.__config__.show()
    mkl = re.search(r"Math Kernel Library Version (\S+(?: Build \d+)?)", built)
    named = re.search(r"BLAS_INFO=(\w+)", built)
    library = f"MKL {mkl[1]}" if mkl else named[1] if named else "unknown"
    limits = [f"{name}={os.environ[name]}" for name in PORTABLE if name in os.environ and "ATEN" not in name]
    return ", ".join([f"{library} on {_cpu()}", *limits])  # a BLAS chooses its kernels by the model of the CPU


@lru_cache(maxsize=1)
def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()
