"""The facts about this machine that `simcluster doctor` shows."""

from __future__ import annotations

import importlib
import socket
from contextlib import suppress
from typing import Any

import psutil

from simcluster.process.accelerators import accelerators_here
from simcluster.process.memory import free_memory_bytes
from simcluster_backends.sockets.launcher.machine_messages import ExamineOrder, MachineFacts
from simcluster_backends.sockets.net.addresses import facing


def examine(question: ExamineOrder) -> MachineFacts:
    """Return this machine's answers to *question*. This imports torch, which may take seconds."""
    unusable = {address: reason for address in question.own if (reason := why_not_ours(address))}
    sources = {address: facing(address) or "" for address in question.peers}
    name = accelerator()
    found = accelerators_here() if name else {}
    return MachineFacts(free_memory_bytes(), name, unusable, sources, found, interfaces())


def interfaces() -> dict[str, str]:
    """Return address -> interface for every address of this machine."""
    with suppress(psutil.Error, OSError):
        return {one.address: name for name, found in psutil.net_if_addrs().items() for one in found}
    return {}


def why_not_ours(address: str) -> str:
    """Return the reason for which this machine cannot listen at *address*, or "" if it can."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(place)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def accelerator() -> str:
    """Return the accelerator that torch finds: "cuda" and its name, "mps" or "none"; "" without torch."""
    try:
        torch: Any = importlib.import_module("torch")
        if torch.cuda.is_available():
            return f"cuda ({torch.cuda.get_device_name(0)})"
        return "mps" if torch.backends.mps.is_available() else "none"
    except Exception:  # a broken installation of torch or of a driver fails in its own ways
        return ""
