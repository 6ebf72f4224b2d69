"""The workloads of the real swarm: shipped ones that take real time, and log their node's progress.

Without PLACE in the environment, as in the simulator, they neither wait nor log anything.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from simcluster import Workload
from simcluster.workloads.models.mnist import mnist_mlp, mnist_moe
from simcluster.workloads.models.quadratic import quadratic
from simcluster.workloads.progress.ledger import Ledger

PLACE: Final = "SWARM_REAL_PLACE"
"""The environment variable with the folder for progress files.

Each life of a node has a file `NAME.PID`, with a letter for each batch that it draws and for each
gradient that it computes.
"""
PACE: Final = "SWARM_REAL_PACE"
"""The environment variable with the seconds that a gradient takes."""
DRAWN, TAKEN = b"d", b"g"

_rehearsal = [True]
"""Empty as soon as the run has begun.

Before that, one batch is drawn to measure its cost, which must not be logged.
"""


def paced_quadratic(*, batch_size: int = 4, samples: int = 64) -> Workload:
    return _paced(quadratic(batch_size=batch_size, samples=samples))


def paced_digits(*, batch_size: int = 4, hidden: int = 8) -> Workload:
    return _paced(mnist_mlp(batch_size=batch_size, hidden=hidden))


def paced_experts(*, batch_size: int = 4) -> Workload:
    return _paced(mnist_moe(batch_size=batch_size, hidden=4, expert_width=4, experts=12))


def _paced(made: Workload) -> Workload:
    _note(b"")
    loss = made.loss

    def slowly(outputs: Tensor, targets: Tensor) -> Tensor:
        if torch.is_grad_enabled() and type(outputs) is Tensor and not _rehearsal and _note(TAKEN):
            time.sleep(float(os.environ[PACE]))
        return loss(outputs, targets)

    return replace(made, loss=slowly)


def _note(letter: bytes) -> bool:
    """If this process is a node, append *letter* to the file of its life, and return True.

    The standard output of a node is a log file with the node's name.
    """
    place = os.environ.get(PLACE)
    log = Path(os.readlink("/proc/self/fd/1")) if place else Path()
    if place is None or log.suffix != ".log":
        return False
    with open(Path(place) / f"{log.stem}.{os.getpid()}", "ab", buffering=0) as file:
        file.write(letter)
    return True


def _listen() -> None:
    draw = Ledger.draw
    drawn_before: list[int] = []

    def drawn(self: Ledger, number: int) -> None:
        if drawn_before:
            _rehearsal.clear()
            _note(DRAWN)
        drawn_before.append(number)
        draw(self, number)

    Ledger.draw = drawn  # type: ignore[method-assign]


if PLACE in os.environ:
    _listen()
