"""Where what is still to come is to be put, so that a transport that can do so receives it there.

A transport may have a method `land(source, tag, place)`: the tensor of the next message from *source* under *tag* is
then received into *place*, if it is of that dtype and shape. It returns None if that message is here already, or on
its way; else a function that gives *place* back: what has come there and has not been received is then moved.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from torch import Tensor

from simcluster.payload import Message
from simcluster.transport import Transport

LEAST_BYTES = 64 * 1024
"""Below that, naming a place takes longer than copying."""


class Landings:
    """Places for messages from rank *source*; all are the caller's again when the `with` ends, however it ends."""

    def __init__(self, node: Transport, source: int) -> None:
        self._land: Callable[[int, str, Tensor], Callable[[], None] | None] | None = getattr(node, "land", None)
        self._source = source
        self._given: dict[str, tuple[Tensor, Callable[[], None]]] = {}

    def add(self, tag: str, place: Tensor) -> None:
        """The next message under *tag* is to be received into *place*, if that can be."""
        if self._land is not None and place.nbytes >= LEAST_BYTES:
            give_back = self._land(self._source, tag, place)
            if give_back is not None:
                self._given[tag] = place, give_back

    def received(self, message: Message, place: Tensor | None = None) -> Tensor:
        """The tensor of *message*, which has been received: in *place*, if that is named."""
        named, give_back = self._given.pop(message.tag, (None, None))
        if give_back is not None and message.tensor is not named:
            give_back()  # it came before its place was named, or it is not what was expected
        return message.tensor if place is None or message.tensor is place else place.copy_(message.tensor)

    def __enter__(self) -> Landings:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, give_back in self._given.values():
            give_back()
