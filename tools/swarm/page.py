"""The table of planted defects in docs/swarm.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tools.mutants.planted import Planted
from tools.mutants.trial import ROOT

FILE: Final = ROOT / "docs" / "swarm.md"
HEADING: Final = "## Planted defects\n"


def write_table(planted: Sequence[Planted], found: Mapping[str, Mapping[str, Any]], heading: str = HEADING) -> None:
    """Write what was *found* of each defect, by number, below the *heading*; what comes after the table stays."""
    before, _, rest = FILE.read_text(encoding="utf-8").partition(heading)
    words, _, after = rest.partition("\n| no. |")
    tail = after.partition("\n\n")[2]
    FILE.write_text(
        f"{before}{heading}{words}\n{table(planted, found)}" + (f"\n{tail}" if tail else ""), encoding="utf-8"
    )


def table(planted: Sequence[Planted], found: Mapping[str, Mapping[str, Any]]) -> str:
    """A row for each defect: where it is, the seed that finds it, and the invariant that is broken."""
    rows = ["| no. | defect | planted into | seed | tried | invariant |", "| --- | --- | --- | --- | --- | --- |"]
    for one in planted:
        mutant = one.mutant
        said = found.get(mutant.number, {})
        seed = said.get("seed")
        defect = mutant.defect + (" (it was there)" if one.was_there else "")
        place = mutant.file.removeprefix("simcluster/").removesuffix(".py")
        cells = [mutant.number, defect, f"`{place}`", "NOT FOUND" if seed is None else str(seed)]
        cells += [str(said.get("tried", 0)), str(said.get("invariant", ""))]
        rows.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return "\n".join(rows) + "\n"
