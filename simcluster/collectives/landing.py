"""Places for tensors still to come, so that a transport can receive them in place: see `Accelerated.land`."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import cast

from torch import Tensor

from simcluster.payload import Message
from simcluster.transport import Accelerated, Transport

LEAST_BYTES = 64 * 1024
"""Below this size, registering a place takes longer than copying."""


class Landings:
    """Places for messages from rank *source*; all are released when the `with` block ends."""

    def __init__(self, node: Transport, source: int) -> None:
        self._land = cast(Accelerated, node).land if hasattr(node, "land") else None
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
