"""A stored answer of a what-if, with enough data to draw its figures again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from simcluster.errors import Problem, UsageError
from simcluster.paths.inside import read

if TYPE_CHECKING:
    from simcluster.what_if.critical_path import Part
    from simcluster.what_if.effects import Effect
    from simcluster.what_if.goal import Goal
    from simcluster.what_if.plots import WhatIfPlots

ANSWER = "whatif.json"
ANSWER_BYTES = 64 << 20


@dataclass(frozen=True)
class ToldPath:
    """The critical path's *parts*, and the sum of their lengths."""

    parts: Sequence[Part]

    @property
    def end_s(self) -> float:
        return sum(part.seconds for part in self.parts)


@dataclass(frozen=True)
class ToldWhatIf:
    """An answer's data for figures: the *goal*, its baseline value by seed, *effects* and the *path*."""

    goal: Goal
    base: Mapping[int, float]
    effects: Sequence[Effect]
    path: ToldPath

    @cached_property
    def plot(self) -> WhatIfPlots:
        """Return the Plotly figures: tornado, path."""
        from simcluster.what_if.plots import WhatIfPlots

        return WhatIfPlots(self.goal, self.base, self.effects, self.path.parts, self.path.end_s)


def is_whatif(folder: Path) -> bool:
    """Whether *folder* has the answer of a what-if."""
    return (folder / ANSWER).is_file()


def load_whatif(folder: Path) -> ToldWhatIf:
    """Return the answer in *folder*. Raises UsageError for a file that no what-if wrote."""
    from simcluster.what_if.critical_path import Part
    from simcluster.what_if.goal import Goal

    try:
        told = msgspec.json.decode(read(folder, ANSWER, most_bytes=ANSWER_BYTES))
        parts = [Part(part["kind"], part["where"], part["seconds"], part["share"], None) for part in told["path"]]
        return ToldWhatIf(
            Goal(told["goal"], told["target"]),
            {int(seed): value for seed, value in told["by_seed"].items()},
            [_effect(row) for row in told["changes"]],
            ToldPath(parts),
        )
    except (OSError, msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        expected = f"the answer of a what-if ({error})"
        raise UsageError(Problem(ANSWER, f"something else in {folder}", expected)) from error


def _effect(row: Mapping[str, Any]) -> Effect:
    from simcluster.what_if.effects import Effect
    from simcluster.what_if.perturb import Change

    change = Change(row["kind"], row["part"], row["change"], {}, row["price_usd"])
    numbers = (row[name] for name in ("value", "relative", "lowest", "highest", "staleness", "error"))
    # Answers from before intervals existed lack them.
    return replace(Effect(change, *numbers), low=row.get("interval_low"), high=row.get("interval_high"))
