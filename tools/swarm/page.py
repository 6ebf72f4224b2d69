"""The tables of planted defects in docs/history/planted-defects.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tools.mutants.planted import Planted
from tools.mutants.trial import ROOT

FILE: Final = ROOT / "docs" / "history" / "planted-defects.md"
HEADING: Final = "## Planted into the simulator\n"


def write_table(planted: Sequence[Planted], found: Mapping[str, Mapping[str, Any]], heading: str = HEADING) -> None:
    """Write the table of results below *heading*. *found* has number of a defect -> its result.

    Text after the table stays.
    """
    before, _, rest = FILE.read_text(encoding="utf-8").partition(heading)
    words, _, after = rest.partition("\n| no. |")
    tail = after.partition("\n\n")[2]
    FILE.write_text(
        f"{before}{heading}{words}\n{table(planted, found)}" + (f"\n{tail}" if tail else ""), encoding="utf-8"
    )


def table(planted: Sequence[Planted], found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table with a row per defect: the seed that finds it, and the invariant that it
    breaks.
    """
    rows = ["| no. | defect | seed | invariant |", "| --- | --- | --- | --- |"]
    for one in planted:
        mutant = one.mutant
        said = found.get(mutant.number, {})
        seed = said.get("seed")
        defect = mutant.defect + (" (it was there)" if one.was_there else "")
        cells = [mutant.number, defect, "NOT FOUND" if seed is None else str(seed), str(said.get("invariant", ""))]
        rows.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return "\n".join(rows) + "\n"
