"""A push on its way into the server's weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from simcluster.payload import Message
from simcluster.workloads import Group


@dataclass(frozen=True, eq=False)
class Push:
    """A *message* to the server, and its *group* of batches in the ledger."""

    message: Message
    group: Group

    @property
    def rank(self) -> int:
        return self.message.source

    @property
    def tensors(self) -> Sequence[Tensor]:
        return self.message.tensors

    def __getitem__(self, name: str) -> Any:
        return self.message[name]
