"""The table of docs/mutants.md: a row for each mutant, with the law that detects it."""

from __future__ import annotations

from tools.mutants.trial import Found, Mutant
from tools.tables import TABLES

FILE = TABLES / "mutants.csv"
COLUMNS = ("no.", "defect", "put into", "shown by", "fails the law")


def row(mutant: Mutant, found: Found) -> list[str]:
    law = found.failed[0][0] if found.failed else "NOT CAUGHT"
    put_into = mutant.file.removeprefix("simcluster/").removesuffix(".py")
    return [mutant.number, mutant.defect, f"`{put_into}`", f"`{mutant.algorithm}`", law]
