"""The parts that a rank holds while a collective runs, keyed by the names in the rounds of its
schedule.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Protocol

from torch import Tensor

from simcluster.collectives.operators import Combine, plus
from simcluster.rounds import WHOLE


class PartHolder(Protocol):
    """A holder of parts, from which rounds take the parts to send and into which they put arriving
    tensors.
    """

    def __getitem__(self, part: Any) -> Tensor: ...

    def take(self, part: Any, tensor: Tensor, own: Tensor | None) -> None:
        """Store the arrived *tensor*, combined with *own*, as *part*, or *tensor* alone if *own* is
        None. *own* is the tensor held as *part*.
        """


class HeldParts(dict[Hashable, Tensor]):
    """A mapping from the names of parts to tensors.

    If *like* has no values, it stands in for a missing part, since a shortcut may have skipped the
    part's round. *combine*: the function that combines an arrived tensor with the one held.
    """

    def __init__(
        self, parts: Mapping[Any, Tensor] | Iterable[tuple[Any, Tensor]], like: Tensor, combine: Combine = plus
    ) -> None:
        super().__init__(parts)
        self._like, self._combine = like, combine

    def __missing__(self, part: Hashable) -> Tensor:
        if self._like.is_meta:
            return self._like
        raise KeyError(part)

    def take(self, part: Hashable, tensor: Tensor, own: Tensor | None) -> None:
        self[part] = tensor if own is None else self._combine(tensor, own, out=tensor)


class CutVector(dict[Any, Tensor]):
    """Parts of *vector*, named by their bounds. They are views, so storing a part changes *vector*.
    *parts* are made in advance, any others on first use. *combine*: as in HeldParts.
    """

    def __init__(self, vector: Tensor, parts: Iterable[tuple[Any, Tensor]] = (), combine: Combine = plus) -> None:
        super().__init__(parts)
        self._combine = combine
        self.vector = self[WHOLE] = vector

    def __missing__(self, part: tuple[int, int]) -> Tensor:
        self[part] = view = self.vector[part[0] : part[1]]
        return view

    def take(self, part: Any, tensor: Tensor, own: Tensor | None) -> None:
        if own is None:
            self[part].copy_(tensor)
        else:
            self._combine(own, tensor, out=own)
