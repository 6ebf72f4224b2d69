"""The steps of a script: calls of an optimizer's `step`, told to the node program, and ended after a given number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from simcluster.scripts.messages import MetricsLogged
from simcluster.scripts.metrics_log import take_metrics
from simcluster.scripts.rank.node_link import NodeLink


def count_steps(link: NodeLink, most: int = 0) -> None:
    """Tell the node program of every step, a call of the `step` of the optimizer that steps most, and of metrics.

    After *most* steps, if that is not 0, the script ends where it would begin the next one: what it logs and prints of
    the last is kept. Without an optimizer, that is where it logs the last.
    """
    counts: dict[int, int] = {}
    reached = [0]

    def count(optimizer: Optimizer, *_: object) -> None:
        counts[id(optimizer)] = counts.get(id(optimizer), 0) + 1
        if counts[id(optimizer)] > reached[0]:
            reached[0] = counts[id(optimizer)]
            link.tell(MetricsLogged(step=reached[0], ends=True))
            if reached[0] == most:
                register_module_forward_pre_hook(_end_in_training)
                register_optimizer_step_pre_hook(_end)

    def log(step: int, metrics: Mapping[str, float]) -> None:
        link.tell(MetricsLogged(step=step, metrics=dict(metrics)))
        if not counts and step >= most > 0:
            _end()

    register_optimizer_step_post_hook(count)
    take_metrics(log)


def _end(*_: object) -> NoReturn:
    raise SystemExit


def _end_in_training(module: torch.nn.Module, *_: object) -> None:
    if module.training and torch.is_grad_enabled():
        _end()
