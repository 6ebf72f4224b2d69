"""How far rows are from predictions, by kind of placement and by what the fit has not seen."""

from __future__ import annotations

from collections.abc import Sequence

from tools.published_rows.fit import factors, is_larger, left_out, neutral_s
from tools.published_rows.rows import PublishedRow

Factors = tuple[float, float]
KINDS = ("alone", "pipeline", "tensor")


def factors_by_kind(rows: Sequence[PublishedRow]) -> dict[str, dict[str, Factors]]:
    """Return kind of placement -> distance -> the factors on a rate between which most rows are.

    "near": each row by a fit without it. "beyond": by a fit to fewer nodes. "unmeasured": by the
    device and the links, without terms of an engine. Each distance has at least the range before.
    """
    seconds = {
        "near": left_out(rows, lambda *_: False),
        "beyond": left_out(rows, is_larger),
        "unmeasured": [neutral_s(row) for row in rows],
    }
    found: dict[str, dict[str, Factors]] = {}
    for kind in KINDS:
        places = [i for i, row in enumerate(rows) if row.placement == kind]
        low, high = 1.0, 1.0
        for distance, each in seconds.items():
            if (kind, distance) != ("alone", "beyond"):  # one node has no fewer
                these = factors([rows[i] for i in places], [each[i] for i in places])
                low, high = min(low, these[0]), max(high, these[1])
            found.setdefault(kind, {})[distance] = low, high
    return found


def most_nodes(rows: Sequence[PublishedRow]) -> dict[str, int]:
    """Return kind of placement -> the largest number of nodes of a row."""
    return {kind: max(row.nodes for row in rows if row.placement == kind) for kind in KINDS}
