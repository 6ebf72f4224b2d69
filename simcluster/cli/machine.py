"""The components of this machine that simcluster needs or can use, each with a way to get it."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec

from simcluster.process.accelerators import accelerators_here
from simcluster.process.installed import CPU_TORCH, TORCH, install_extra
from simcluster.process.memory import free_memory_bytes
from simcluster.units import format_size

LEAST_FREE_BYTES = 2**30
"""The least free memory for a run. A process with torch takes about 300 MB, and a run has several.
"""

EXTRAS: Mapping[str, tuple[str, str]] = {
    "uvloop": ("uvloop", "a faster event loop for real nodes"),
    "dask": ("distributed", "sweeps on a Dask cluster"),
    "api": ("fastapi", "the coordinator and its page"),
    "lm": ("tokenizers", "tokens and chat templates of language models"),
    "images": ("PIL", "workloads on folders of images"),
    "tls": ("cryptography", "TLS between nodes"),
    "mlflow": ("mlflow", "runs in MLflow"),
    "wandb": ("wandb", "runs in Weights & Biases"),
    "tensorboard": ("tensorboardX", "runs in TensorBoard"),
    "plot-static": ("kaleido", "figures as SVG, PDF, PNG"),
    "notebook": ("jupytext", "the notebooks"),
    "mcp": ("mcp", "tools for programs"),
}
"""Name of an optional extra -> (a module that it installs, what it is for)."""

_PROGRAMS = {"ssh": ("openssh-client", "nodes on other machines"), "tmux": ("tmux", "a pane for each node (--tmux)")}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_MAC_CHROME = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"


@dataclass(frozen=True)
class Finding:
    """The presence or absence of a component on this machine.

    *found* describes the component, *do* says how to get it if it is missing, and *needed* is
    whether every run needs it.
    """

    name: str
    found: str
    ok: bool
    needed: bool
    do: str = ""


def findings() -> list[Finding]:
    """Return the findings about this machine."""
    return [_python(), *_torch(), _memory(), _cores(), _ports(), *_programs(), _chromium(), *_extras()]


def _python() -> Finding:
    version = platform.python_version()
    ok = sys.version_info >= (3, 11)
    return Finding("python", f"{version} at {sys.executable}", ok, True, "" if ok else "install Python 3.11 or newer")


def _torch() -> Iterator[Finding]:
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a shared library that torch needs is missing
        found = "not installed" if getattr(error, "name", None) == "torch" else f"cannot be imported: {error}"
        yield Finding("torch", found, False, True, f"{TORCH}; {CPU_TORCH}")
        return
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
    with suppress(AttributeError):
        build = f"ROCm {torch.version.hip}" if torch.version.hip else build
    if torch.backends.mps.is_built():
        build += ", MPS"
    least = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) >= (2, 6)
    yield Finding("torch", f"{torch.__version__} ({build})", least, True, "" if least else "pip install 'torch>=2.6'")
    there = accelerators_here()
    kinds = ", ".join(f"{number} x {kind}" for kind, number in there.items()) or "none: nodes compute on the CPU"
    yield Finding("accelerator", kinds, True, False)


def _memory() -> Finding:
    free = free_memory_bytes()
    ok = free >= LEAST_FREE_BYTES
    do = "" if ok else "close programs, or run fewer nodes here: each is a process of about 300 MB"
    return Finding("memory", f"{format_size(free)} free", ok, True, do)


def _cores() -> Finding:
    cores = os.cpu_count() or 1
    return Finding("cores", str(cores), True, False)


def _ports() -> Finding:
    """Try to listen on loopback, as nodes on this machine do; return whether that works."""

    async def listen() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        server.close()
        await server.wait_closed()

    try:
        asyncio.run(listen())
    except OSError as error:
        return Finding("ports", f"cannot listen on 127.0.0.1: {error}", False, False, "allow it: nodes listen there")
    return Finding("ports", "free ones on 127.0.0.1", True, False)


def _programs() -> Iterator[Finding]:
    for name, (package, purpose) in _PROGRAMS.items():
        path = shutil.which(name)
        found = path or f"not there: {purpose}"
        yield Finding(name, found, path is not None, False, "" if path else _install(package, name))


def _chromium() -> Finding:
    path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path is None and os.path.exists(_MAC_CHROME):
        path = _MAC_CHROME
    found = path or "not there: figures as SVG, PDF, PNG"
    return Finding("chromium", found, path is not None, False, "" if path else _install("chromium", "chromium"))


def _install(package: str, formula: str) -> str:
    return f"brew install {formula}" if sys.platform == "darwin" else f"sudo apt install {package}"


def _extras() -> Iterator[Finding]:
    for extra, (module, purpose) in EXTRAS.items():
        there = find_spec(module) is not None
        do = "" if there else install_extra(extra)
        yield Finding(f"extra {extra}", "installed" if there else f"not there: {purpose}", there, False, do)
