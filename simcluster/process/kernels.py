"""The kernels that torch chooses on this machine: name them, or limit torch to portable ones."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from simcluster.errors import UsageError

PORTABLE = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
"""The environment variables that limit torch's own kernels, MKL and oneDNN to instructions of every
x86-64 machine.

COMPATIBLE is the only branch of MKL that is the same on the processors of all vendors.
"""

X86 = ("x86_64", "amd64")
_COMPATIBLE = 3  # MKL_CBWR_COMPATIBLE of mkl_types.h
_ALL = -1  # MKL_CBWR_ALL of mkl_types.h
_limited_here = False


def numerics(device: str = "cpu") -> dict[str, str]:
    """Return everything on this machine that the bits of a result depend on.

    These are torch's build, its BLAS and the CPU, the instruction set, and the *device*.
    """
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return {"torch": str(torch.__version__), "blas": _blas(), "cpu_capability": capability, "device": device}


def heed_portable(options: Mapping[str, Any]) -> None:
    """Limit this process to portable kernels from now on, if the option `portable` is true.

    Raise UsageError if that is impossible: on a processor that is not x86-64, or after torch has
    chosen its kernels.
    """
    if options.get("portable") is not True:
        return
    machine = platform.machine().lower()
    if machine not in X86:
        raise UsageError("portable", f"true on {machine}", "x86-64 on every node")
    before = {name: os.environ.get(name) for name in PORTABLE}
    # The libraries read these variables before their first kernel. If that has run, restore the
    # variables.
    os.environ.update(PORTABLE)
    if not is_portable():
        for name in PORTABLE:
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if value is not None})
        settings = " ".join(f"{name}={value}" for name, value in PORTABLE.items())
        found = "true in a process in which torch has computed already"
        raise UsageError("portable", found, f"a new process, or one started with {settings}")
    global _limited_here
    _limited_here |= before != PORTABLE


def stay_portable() -> bool:
    """Return whether `heed_portable` has limited this process."""
    return _limited_here


def is_portable() -> bool:
    """Return whether this process computes with portable kernels."""
    import torch

    if any(os.environ.get(name) != value for name, value in PORTABLE.items()):
        return False
    return torch.backends.cpu.get_cpu_capability() == "DEFAULT" and _branch() in (None, _COMPATIBLE)


def _branch() -> int | None:
    """Return the branch that MKL is limited to; None without an MKL that can be asked."""
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
    library = named[1] if named else "unknown"
    if mkl:
        library = f"MKL {mkl[1]}"
    limits = [f"{name}={os.environ[name]}" for name in PORTABLE if name in os.environ and "ATEN" not in name]
    # A BLAS chooses its kernels by the model of the CPU.
    return ", ".join([f"{library} on {_cpu()}", *limits])


@lru_cache(maxsize=1)
def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()
