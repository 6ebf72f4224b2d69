"""Count a script's steps, report them to the node program, and end the script after a limit.

A step is a call of an optimizer's `step`. In a script without an optimizer, a step is a round of
collectives, which ends when a line makes a call for the second time. Broadcasts and scatters do not
count, since they distribute initial values. Sends and receives do not count, since their number
differs between ranks.
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
    """A counter that reports steps and metrics over *link*, and ends the script after *most* steps.

    The script ends only where it would begin the next step, so that everything that it logs and
    prints about its last step is kept. If *most* is 0, there is no limit.
    """

    def __init__(self, link: NodeLink, most: int) -> None:
        self._link, self._most = link, most
        self._reached = 0
        self._optimizers: dict[int, int] = {}
        # The lines that have made calls in this round; None if steps are counted by an optimizer or
        # `log`.
        self._lines: set[str] | None = set()
        register_optimizer_step_post_hook(self._count)
        take_metrics(self._log)
        link.on_call = self._count_call

        @around(Optimizer, "__init__")
        def init(real: Any, *args: Any, **how: Any) -> None:
            self._lines = None
            real(*args, **how)

    def end(self) -> None:
        """At the end of the script, report its last round.

        If the script has reported no step at all, report one.
        """
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
    """Do nothing. A frame with this trace function has already been counted."""


def _end(*_: object) -> NoReturn:
    raise SystemExit


def _end_in_training(module: torch.nn.Module, *_: object) -> None:
    if module.training and torch.is_grad_enabled():
        _end()
