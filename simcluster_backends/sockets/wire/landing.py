"""Buffers that tensors are received into: registered in advance, and returned whatever happens."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from simcluster.payload import DTYPE_NAMES, Payload

if TYPE_CHECKING:
    from simcluster.payload import Message, MessageHeader


@dataclass(slots=True, eq=False)
class Landing:
    """*place* is for the tensor of the next message with *tag*; *message* is that message, once it has arrived."""

    tag: str
    place: Tensor
    message: Message | None = None

    def fits(self, header: MessageHeader) -> bool:
        """Return whether *header* announces one tensor with the dtype and shape of *place*."""
        only, place = header.tensors[0] if len(header.tensors) == 1 else None, self.place
        return only is not None and only.dtype == DTYPE_NAMES[place.dtype] and only.shape == list(place.shape)

    def leave(self) -> None:
        """Move the received message out of *place*."""
        if self.message is not None:
            self.message.payload = Payload((self.place.clone(),), self.message.payload.values)


class Landings:
    """The landings of one stream; messages with the same tag use them in order of registration."""

    def __init__(self) -> None:
        self._by_tag: dict[str, deque[Landing]] = {}

    def add(self, tag: str, place: Tensor) -> Landing:
        landing = Landing(tag, place)
        self._by_tag.setdefault(tag, deque()).append(landing)
        return landing

    def take(self, header: MessageHeader) -> Landing | None:
        """Remove and return the landing for the message that begins with *header*, if there is one and it fits."""
        waiting = self._by_tag.get(header.tag)
        if waiting is None:
            return None
        landing = waiting[0]
        self.drop(landing)
        return landing if landing.fits(header) else None

    def drop(self, landing: Landing) -> None:
        """Forget *landing*, if it is still registered."""
        waiting = self._by_tag.get(landing.tag)
        if waiting is not None and landing in waiting:
            waiting.remove(landing)
            if not waiting:
                del self._by_tag[landing.tag]
