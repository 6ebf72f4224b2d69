"""The setting `order` of a pipeline: the ranks that hold its stages, first to last.

order: [mini1, pi5, mini2]     # names in an experiment, or ranks; the others take no part
order: auto                    # in an experiment: the fastest by placement.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, NonNegativeInt, ValidationInfo
from pydantic_core import PydanticCustomError

from simcluster.errors import UsageError
from simcluster.overlays.types import World
from simcluster.spelling import nearest

AUTO = "auto"


def ranks_of(order: Sequence[str | int] | str | None, size: int, names: Sequence[str] = ()) -> tuple[int, ...]:
    """Return the ranks in *order*, or all *size* ranks if it is None.

    Raise UsageError if *order* is a string or empty, or if an entry is unknown, out of range or
    repeated.

    *names*: the nodes' names in rank order; without names, entries must be ranks.
    """
    if order is None:
        return tuple(range(size))
    if isinstance(order, str):
        raise UsageError("order", order, "a list of ranks: only an experiment can choose an order")
    if not order:
        raise UsageError("order", "no node", "at least one: each in the list holds a stage")
    found: list[int] = []
    for entry in order:
        if isinstance(entry, str) and entry not in names:
            expected = nearest(entry, names) if names else f"ranks from 0 to {size - 1}: only an experiment has names"
            raise UsageError("order", repr(entry), expected)
        rank = names.index(entry) if isinstance(entry, str) else entry
        if rank >= size:
            raise UsageError("order", f"rank {rank}", f"ranks from 0 to {size - 1}")
        if rank in found:
            raise UsageError("order", f"{entry!r} twice", "each node at most once")
        found.append(rank)
    return tuple(found)


def _checked(order: Any, info: ValidationInfo) -> Any:
    context: Mapping[str, Any] = info.context or {}
    world: World | None = context.get("world")
    if world is not None and order is not None and order != AUTO:
        try:
            ranks_of(order, len(world.names), world.names)
        except UsageError as wrong:
            problem = wrong.problems[0]
            reason = f"{problem.expected} (not {problem.found})"
            raise PydanticCustomError("order", "{reason}", {"reason": reason}) from None
    return order


Order = Annotated[tuple[NonNegativeInt | str, ...] | Literal["auto"] | None, AfterValidator(_checked)]
"""The nodes in order, by name or rank; or `auto`; or None for all ranks in the order of the
topology.
"""


def stages_of(size: int, settings: Mapping[str, Any]) -> int:
    """Return the number of ranks, out of *size*, that hold stages."""
    order = settings.get("order")
    return size if order is None or isinstance(order, str) else len(order)


def takes_no_part(rank: int, size: int, settings: Mapping[str, Any]) -> bool:
    """Return whether *rank* is left out of the order and so holds no stage."""
    order = settings.get("order")
    return not (order is None or isinstance(order, str)) and rank not in order
