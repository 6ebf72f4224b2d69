"""End a run early, when its held-out loss has not become lower for several evaluations in a row."""

from __future__ import annotations

import json
from collections.abc import Callable

import torch

from simcluster.checkpoints.shard import ALGORITHM, Shard
from simcluster.checkpoints.tree import DICT, decode
from simcluster.collectives import broadcast
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.progress.progress import GAIN

Losses = Callable[[int], list[float]]
"""A function that returns the held-out losses of the steps after the given one, in order."""


class Patience:
    """The rule `stop.patience` on one rank: *limit* evaluations in a row without a lower loss end the run of *replica*.

    Only rank 0 of *node* evaluates. At the end of the first round at or after each multiple of *every* steps it sends
    its new *losses* to all ranks, so all of them make the same decision.
    """

    def __init__(self, limit: int, every: int, node: Transport, replica: Replica, losses: Losses) -> None:
        self._limit, self._every = limit, every
        self._node = node
        self._replica = replica
        self._losses = losses
        self._step = replica.done
        replica.gain = replica.kept.get(GAIN, [None, 0])
        replica.decide = self._decide
        self._end_if_over()  # a re-formed group may begin after the step that ended the run

    async def _decide(self, step: int) -> None:
        before, self._step = self._step, step
        if step // self._every == before // self._every:
            return
        own = torch.tensor(self._losses(before) if self._node.rank == 0 else [], dtype=torch.float64)
        (found,) = await broadcast(self._node, [own], f"patience/{step}", schedule="binomial")
        for loss in found.tolist():
            lowest, since = self._replica.gain
            self._replica.gain = [loss, 0] if lowest is None or loss < lowest else [lowest, since + 1]
        self._end_if_over()

    def _end_if_over(self) -> None:
        replica = self._replica
        if replica.gain[1] >= self._limit:
            replica.ended_early, replica.steps = self._step < replica.steps, self._step


def evaluations_without_gain(shard: Shard) -> int:
    """Return the number of evaluations since the lowest held-out loss, as *shard* keeps it; 0 if it keeps none."""
    kept = dict(json.loads(shard.trees)[ALGORITHM][DICT])
    return int(decode(kept[GAIN], {})[1]) if GAIN in kept else 0
