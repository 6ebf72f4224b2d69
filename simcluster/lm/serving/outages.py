"""The lines about lost and returned nodes on a server's terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simcluster.lm.serving.setup import PlacementLayout, PlacementState


class OutageLog:
    """A log of nodes that are lost and that answer again. *tell* gets its lines.

    *names* has the nodes by rank. Call `opened` with the placement of each new engine, and `ended`
    if all nodes start again.
    """

    def __init__(self, names: Sequence[str], layout: PlacementLayout, tell: Callable[[str], object]) -> None:
        self._names = names
        self._first = layout
        self._tell = tell
        self._lost: dict[int, str] = {}
        self._is_down = False

    def opened(self, placed: PlacementState | None) -> None:
        lost = placed.lost if placed is not None else {}
        layout = placed.layout if placed is not None else self._first
        where = f"{layout.kind} on {self._in_words(layout.ranks)}"
        lines = [f"{self._with_reason(rank, why)}; {where}" for rank, why in lost.items() if rank not in self._lost]
        if self._is_down:
            lines.append(f"all answer again; {where}")
        elif back := [rank for rank in self._lost if rank not in lost]:
            lines.append(f"{self._in_words(back)} {'answers' if len(back) == 1 else 'answer'} again; {where}")
        for line in lines:
            self._tell(line)
        self._lost, self._is_down = dict(lost), False

    def ended(self, why: str) -> None:
        """Note that the engine ended because of *why*, and that all nodes start again."""
        self._is_down = True
        self._tell(f"{why}; all nodes start again, and requests are refused until they have loaded the model")

    def _with_reason(self, rank: int, why: str) -> str:
        return f"{self._names[rank]} is lost: {why or 'other nodes noticed it'}"

    def _in_words(self, ranks: Sequence[int]) -> str:
        return ", ".join(self._names[rank] for rank in ranks)
