"""The program that a node runs, found by name, and the failure that it reports to the launcher."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster_backends.common.failure import Failure, failure_of, first_of
from simcluster_backends.sockets.node.transport import SocketTransport

Program: TypeAlias = Callable[[SocketTransport, Recorder, str], Awaitable[NodeRecord]]


def load(program: str) -> Program:
    """Return the coroutine function called "module:function"."""
    module, _, function = program.partition(":")
    found: Any = getattr(importlib.import_module(module), function)
    loaded: Program = found
    return loaded


def prepare(program: str, config_json: str) -> None:
    """Call `prepare` of the program's module, if it has one, before the clock starts."""
    found = getattr(importlib.import_module(program.partition(":")[0]), "prepare", None)
    if found is not None:
        found(config_json)


def failure_at(error: BaseException, stopped: str, *, began: bool) -> Failure:
    """Return the failure to report for *error*; print its details.

    *stopped* is why the launcher ended the run, if it did; *began*: the algorithm has begun.
    """
    if stopped and isinstance(first_of(error), asyncio.CancelledError):
        return Failure("stopped", stopped)
    failure = failure_of(error, began=began)
    if failure.details:
        print(failure.details, flush=True)
    return failure
