"""A stored answer of a what-if, with enough data to draw its figures again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from simcluster.errors import Problem, UsageError
from simcluster.paths.inside import read
from simcluster.what_if.critical_path import Part
from simcluster.what_if.effects import Effect
from simcluster.what_if.goal import Goal
from simcluster.what_if.outcome import ANSWER
from simcluster.what_if.perturb import Change
from simcluster.what_if.plots import WhatIfPlots

ANSWER_BYTES = 64 << 20


def is_whatif(folder: Path) -> bool:
    """Whether *folder* has the answer of a what-if."""
    return (folder / ANSWER).is_file()


def load_whatif(folder: Path) -> WhatIfPlots:
    """Return the figures of the answer in *folder*. Raises UsageError for a file that no what-if wrote."""
    try:
        told = msgspec.json.decode(read(folder, ANSWER, most_bytes=ANSWER_BYTES))
        parts = [Part(part["kind"], part["where"], part["seconds"], part["share"], None) for part in told["path"]]
        goal = Goal(told["goal"], told["target"])
        base = {int(seed): value for seed, value in told["by_seed"].items()}
        effects = [
            Effect(
                Change(row["kind"], row["part"], row["change"], {}, row["price_usd"]),
                *(row[name] for name in ("value", "relative", "lowest", "highest", "staleness", "error")),
                *(row.get(name) for name in ("interval_low", "interval_high")),  # which older answers lack
            )
            for row in told["changes"]
        ]
        return WhatIfPlots(goal, base, effects, parts, sum(part.seconds for part in parts))
    except (OSError, msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        expected = f"the answer of a what-if ({error})"
        raise UsageError(Problem(ANSWER, f"something else in {folder}", expected)) from error
