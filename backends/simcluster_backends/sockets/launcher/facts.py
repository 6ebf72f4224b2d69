"""The facts about this machine that `simcluster doctor` shows."""

from __future__ import annotations

import importlib
import socket
from typing import Any

from simcluster.process.accelerators import accelerators_here
from simcluster.process.memory import free_memory_bytes
from simcluster_backends.sockets.launcher.orders import ExamineOrder, MachineFacts
from simcluster_backends.sockets.net.addresses import facing


def examine(question: ExamineOrder) -> MachineFacts:
    """Return the facts of this machine. Imports torch, which may take seconds."""
    unusable = {address: reason for address in question.own if (reason := why_not_ours(address))}
    sources = {address: facing(address) or "" for address in question.peers}
    name = accelerator()
    return MachineFacts(free_memory_bytes(), name, unusable, sources, accelerators_here() if name else {})


def why_not_ours(address: str) -> str:
    """Return why this machine cannot listen at *address*; "" if it can."""
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
