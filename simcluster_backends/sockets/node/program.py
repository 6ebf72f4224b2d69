"""The program that a node runs, found by name, and what is told of it when it fails."""

from __future__ import annotations

import asyncio
import importlib
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from simcluster.errors import Left, PeerLost, SimclusterError
from simcluster.runs.record import NodeRecord, Recorder
from simcluster_backends.sockets.node.transport import SocketTransport
from simcluster_backends.sockets.wire.messages import LEFT, Failure

DETAILS_CHARACTERS = 20_000

Program: TypeAlias = Callable[[SocketTransport, Recorder, str], Awaitable[NodeRecord]]


def load(program: str) -> Program:
    """The coroutine function called "module:function"."""
    module, _, function = program.partition(":")
    found: Any = getattr(importlib.import_module(module), function)
    loaded: Program = found
    return loaded


def prepare(program: str, config_json: str) -> None:
    """What the program's module does before the clock starts, if it does anything."""
    found = getattr(importlib.import_module(program.partition(":")[0]), "prepare", None)
    if found is not None:
        found(config_json)


def failure_of(error: BaseException, stopped: str, *, began: bool) -> Failure:
    """What to tell the launcher of *error*. A group is a lost peer only if nothing else is in it.

    *stopped* says why the launcher ended the run, if it did; *began*: the algorithm has.
    """
    details = "".join(traceback.format_exception(error))[-DETAILS_CHARACTERS:]
    leaves = _leaves(error)
    first = next((leaf for leaf in leaves if not isinstance(leaf, PeerLost)), leaves[0])
    if stopped and isinstance(first, asyncio.CancelledError):
        return Failure("stopped", stopped)
    if isinstance(first, Left):
        return Failure(LEFT, str(first))
    print(details, flush=True)
    if isinstance(first, PeerLost):
        return Failure("peer_lost", first.reason, first.rank, details)
    if not began and isinstance(first, SimclusterError):
        return Failure("start", str(first), details=details)
    return Failure("failed", f"{type(first).__name__}: {first}", details=details)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]
