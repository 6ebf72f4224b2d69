"""Held-out metrics of a run in which several nodes were evaluated, since any of them might have stood for it."""

from __future__ import annotations

from typing import Final

from simcluster.runs.record import Metric, NodeRecord, RunRecord, regroups
from simcluster.runs.summary import ACCURACY, LOSS

HELD_OUT: Final = (LOSS, ACCURACY)


def keep_those_that_stand(record: RunRecord) -> None:
    """Leave in *record* the held-out metrics of the node that stands for the run alone.

    If groups were formed again, steps that it was not there for keep those of the lowest rank that made them.
    """
    if not record.nodes:
        return
    stands = record.standing
    others = sorted((node for node in record.nodes if node is not stands), key=lambda node: node.rank)
    known = {(metric.name, metric.step) for metric in _held_out(stands)}
    for node in others:
        keeps = {(metric.name, metric.step) for metric in _held_out(node)} - known if _fills(node, record) else set()
        node.metrics = [
            metric for metric in node.metrics if metric.name not in HELD_OUT or (metric.name, metric.step) in keeps
        ]
        known |= keeps


def _held_out(node: NodeRecord) -> list[Metric]:
    return [metric for metric in node.metrics if metric.name in HELD_OUT]


def _fills(node: NodeRecord, record: RunRecord) -> bool:
    return bool(regroups(record.nodes)) and node.trained
