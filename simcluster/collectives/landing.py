"""Places for messages still to come, so that a transport can receive them in place.

A transport may define `land(source, tag, place)`: it then receives the tensor of the next message from *source* under
*tag* into *place*, if dtype and shape match. `land` returns None if that message has arrived or is arriving; otherwise
a function that releases *place*: data that is in it but was not received yet is then moved away.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from torch import Tensor

from simcluster.payload import Message
from simcluster.transport import Transport

LEAST_BYTES = 64 * 1024
"""Below this size, registering a place takes longer than copying."""


class Landings:
    """Places for messages from rank *source*; all are released when the `with` block ends."""

    def __init__(self, node: Transport, source: int) -> None:
        self._land: Callable[[int, str, Tensor], Callable[[], None] | None] | None = getattr(node, "land", None)
        self._source = source
        self._given: dict[str, tuple[Tensor, Callable[[], None]]] = {}

    def add(self, tag: str, place: Tensor) -> None:
        """Receive the next message under *tag* into *place*, if possible."""
        if self._land is not None and place.nbytes >= LEAST_BYTES:
            give_back = self._land(self._source, tag, place)
            if give_back is not None:
                self._given[tag] = place, give_back

    def received(self, message: Message, place: Tensor | None = None) -> Tensor:
        """Return the tensor of the received *message*, in *place* if one is given."""
        named, give_back = self._given.pop(message.tag, (None, None))
        if give_back is not None and message.tensor is not named:
            give_back()  # it arrived before its place was registered, or is not as expected
        return message.tensor if place is None or message.tensor is place else place.copy_(message.tensor)

    def __enter__(self) -> Landings:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, give_back in self._given.values():
            give_back()
