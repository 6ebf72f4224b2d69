"""The points of a sweep: an experiment with one combination of values and one seed each, all valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simcluster.errors import Problem, UsageError
from simcluster.experiment.read import read_experiment
from simcluster.sweeps.axes import MOST_POINTS, Axis, combinations
from simcluster.sweeps.digest import digest_of

Source = str | Path | Mapping[str, Any]

MOST_PROBLEMS = 20


@dataclass(frozen=True)
class Point:
    """Point number *index*: *values* of the swept keys, the *digest* that names its run, the whole *document*."""

    index: int
    values: dict[str, Any]
    seed: int
    digest: str
    document: dict[str, Any] = field(repr=False)


def read_points(
    experiment: Source,
    axes: Sequence[Axis],
    fixed: Mapping[str, Any],
    *,
    seeds: int = 1,
    seed: int | None = None,
    **options: Any,
) -> list[Point]:
    """Return every combination with *seeds* seeds, counted from *seed* or the experiment's; seeds change fastest.

    All points have the same seeds, and random streams are keyed by names: points with one seed meet the same
    stragglers, batches and faults, so they can be compared. Raises UsageError with the problems of all points.
    """
    combined = combinations(axes)
    if seeds < 1 or seeds * len(combined) > MOST_POINTS:
        found = f"{seeds} of each of {len(combined):,} combinations"
        raise UsageError(Problem("--seeds", found, f"at least 1, and at most {MOST_POINTS:,} points"))
    if seeds > 1 and any("seed" in axis.keys for axis in axes):
        raise UsageError(Problem("--seeds", str(seeds), "either this or --set seed=..."))
    points: list[Point] = []
    problems: dict[str, Problem] = {}
    for values in combined:
        wanted = seed
        for number in range(seeds):
            try:
                plan = read_experiment(experiment, {**fixed, **values}, seed=wanted, **options)
            except UsageError as error:
                problems.update({str(problem): problem for problem in error.problems})
                if wanted is None or not number:
                    break
            else:
                points.append(Point(len(points), values, plan.seed, digest_of(plan.document), plan.document))
                wanted = plan.seed
            wanted += 1
    if problems:
        raise UsageError(list(problems.values())[:MOST_PROBLEMS])
    return points
