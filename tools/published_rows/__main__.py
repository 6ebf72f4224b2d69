"""`python -m tools.published_rows > docs/tables/published-rows.csv`: rows, each predicted without it.

Standard error gets what simcluster/lm/plan/engines.py and intervals.py have to say: the fitted
terms, and the factors of the intervals. The package has its own copy of them.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator

import numpy as np

from tools.published_rows.fit import fit, left_out, pairs
from tools.published_rows.intervals import factors_by_kind, most_nodes
from tools.published_rows.rows import PublishedRow, published

HEAD = (
    "engine", "version", "model", "format", "device", "nodes", "placement", "link", "measured tokens/s",
    "predicted tokens/s", "error", "source", "where",
)  # fmt: skip


def table(rows: list[PublishedRow]) -> Iterator[tuple[str, ...]]:
    """Yield the head of the table, then each of *rows* with its prediction by a fit without it."""
    yield HEAD
    for row, row_s in zip(rows, left_out(rows, lambda *_: False), strict=True):
        setup = row.engine, row.version, row.model, row.format, row.device, str(row.nodes), row.placement, row.link
        rates = f"{1 / row.measured_s:.4g}", f"{1 / row_s:.4g}", f"{100 * (row.measured_s / row_s - 1):+.1f}%"
        yield (*setup, *rates, row.source, row.where)


def summary(rows: list[PublishedRow]) -> Iterator[str]:
    """Yield lines on the fit: its size, its errors, the order of placements, terms and factors."""
    seconds = left_out(rows, lambda *_: False)
    errors = [abs(row.measured_s / row_s - 1) for row, row_s in zip(rows, seconds, strict=True)]
    ordered = pairs(rows, seconds)
    values = fit(rows)
    yield f"{len(rows)} rows, {len(values)} parameters; left out one at a time: median error {np.median(errors):.1%}"
    yield f"placements of one setup in the right order: {sum(ordered)} of {len(ordered)} pairs"
    yield from (f"{name}: {value:.3g}" for name, value in values.items())
    for kind, levels in factors_by_kind(rows).items():
        yield f"{kind}, up to {most_nodes(rows)[kind]} nodes: " + "; ".join(
            f"{level} {low:.2f} to {high:.2f}" for level, (low, high) in levels.items()
        )


def main() -> None:
    rows = published()
    csv.writer(sys.stdout, lineterminator="\n").writerows(table(rows))
    print(*summary(rows), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
