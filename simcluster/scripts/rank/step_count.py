"""The steps of a script, told to the node program while it runs, and ended after a given number.

A step is a call of an optimizer's `step`. In a script without an optimizer it is a round of collectives, which ends
where a line makes a call again that has made one in this round. Broadcasts and scatters, which spread first values, and
messages, of which ranks have different numbers, do not count.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any, NoReturn

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from simcluster.scripts.messages import MetricsLogged
from simcluster.scripts.metrics_log import take_metrics
from simcluster.scripts.rank.node_link import NodeLink, script_place
from simcluster.scripts.rank.replacements import around

_UNCOUNTED = ("broadcast", "scatter", "send", "recv")


class StepCount:
    """Tells *link* of every step and of metrics.

    After *most* steps, if that is not 0, the script ends where it would begin the next one: what it logs and prints of
    the last is kept.
    """

    def __init__(self, link: NodeLink, most: int) -> None:
        self._link, self._most = link, most
        self._reached = 0
        self._optimizers: dict[int, int] = {}
        self._lines: set[str] | None = set()  # of this round; None once an optimizer or `log` has the steps
        register_optimizer_step_post_hook(self._count)
        take_metrics(self._log)
        link.on_call = self._count_call

        @around(Optimizer, "__init__")
        def init(real: Any, *args: Any, **how: Any) -> None:
            self._lines = None
            real(*args, **how)

    def end(self) -> None:
        """Tell of the last round, or of the only step of a script that has told of none, as the script ends now."""
        if self._lines or not self._reached:
            self._tell(self._reached + 1)

    def _count(self, optimizer: Optimizer, *_: object) -> None:
        count = self._optimizers[id(optimizer)] = self._optimizers.get(id(optimizer), 0) + 1
        if count > self._reached:
            self._tell(count)
            if count == self._most:
                register_module_forward_pre_hook(_end_in_training)
                register_optimizer_step_pre_hook(_end)

    def _count_call(self, operation: str) -> None:
        if self._lines is None or operation in _UNCOUNTED:
            return
        line, called = script_place(sys._getframe(1))
        if called is None or called.f_trace is _counted:
            return
        called.f_trace = _counted
        if line in self._lines:
            self._lines.clear()
            self._tell(self._reached + 1)
            if self._reached == self._most:
                _end()
        self._lines.add(line)

    def _tell(self, step: int) -> None:
        self._reached = step
        self._link.tell(MetricsLogged(step=step, ends=True))

    def _log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._lines = None
        self._link.tell(MetricsLogged(step=step, metrics=dict(metrics)))
        if not self._optimizers and step >= self._most > 0:
            _end()


def _counted(frame: FrameType, *_: object) -> None:
    """Mark, as its trace function, a frame whose calls count as one."""


def _end(*_: object) -> NoReturn:
    raise SystemExit


def _end_in_training(module: torch.nn.Module, *_: object) -> None:
    if module.training and torch.is_grad_enabled():
        _end()
