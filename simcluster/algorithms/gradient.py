"""One rank's gradient on its way into the server's weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from simcluster.payload import Message
from simcluster.workloads import Group, Replica


@dataclass(frozen=True)
class Gradient:
    """The gradient of *rank*, *taken_at* a step or a version of the weights; *group*: its batches in the ledger."""

    rank: int
    tensors: Sequence[Tensor]
    taken_at: int
    loss: float
    group: Group

    @classmethod
    def received(cls, push: Message, taken_at: int, replica: Replica) -> Gradient:
        """Return the gradient that *push* brings to the server, which trains *replica*."""
        return cls(push.source, push.tensors, taken_at, push["loss"], replica.ledger.receive(push))
