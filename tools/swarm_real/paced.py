"""The workloads of the real swarm: shipped ones that take their time, and note in a file how far their node is.

Without PLACE in the environment, as in the simulator, it neither waits nor notes anything.
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
from simcluster.workloads.models.mnist import mnist_mlp
from simcluster.workloads.models.quadratic import quadratic
from simcluster.workloads.progress.ledger import Ledger

PLACE: Final = "SWARM_REAL_PLACE"
"""The folder with a file for each life of a node, `NAME.PID`: a letter for each batch drawn and each gradient taken."""
PACE: Final = "SWARM_REAL_PACE"
"""Seconds that a gradient takes."""
DRAWN, TAKEN = b"d", b"g"

_rehearsal = [True]
"""Empty once the run has begun: before that one batch is drawn, to count what work costs."""


def paced_quadratic(*, batch_size: int = 4, samples: int = 64) -> Workload:
    return _paced(quadratic(batch_size=batch_size, samples=samples))


def paced_digits(*, batch_size: int = 4, hidden: int = 8) -> Workload:
    return _paced(mnist_mlp(batch_size=batch_size, hidden=hidden))


def _paced(made: Workload) -> Workload:
    _note(b"")
    loss = made.loss

    def slowly(outputs: Tensor, targets: Tensor) -> Tensor:
        if torch.is_grad_enabled() and type(outputs) is Tensor and not _rehearsal and _note(TAKEN):
            time.sleep(float(os.environ[PACE]))
        return loss(outputs, targets)

    return replace(made, loss=slowly)


def _note(letter: bytes) -> bool:
    """Append *letter* to the file of this life, if this process is a node: it prints into a log that has its name."""
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
