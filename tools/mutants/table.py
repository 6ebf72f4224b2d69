"""The table of mutants as docs/mutants.md has it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tools.mutants.trial import ROOT, Found, Mutant

FILE = ROOT / "docs" / "mutants.md"

_HEAD = """# Mutants

Known defects of real systems that run, print a falling loss and report no error. Each is put into a copy of this
library, and `simcluster verify` must fail it. Written by `python -m tools.mutants`. Numbers are those of a list of 51
defects, of which several have more than one form; lines without a number are from elsewhere.

"""


def page(mutants: Sequence[Mutant], found: Sequence[Found]) -> str:
    """The whole page."""
    rows = ["| no. | defect | put into | shown by | what `verify` says |", "| --- | --- | --- | --- | --- |"]
    rows += [row(mutant, one) for mutant, one in zip(mutants, found, strict=True)]
    return _HEAD + "\n".join(rows) + "\n"


def row(mutant: Mutant, found: Found) -> str:
    name, reason = found.failed[0] if found.failed else ("", "NOT CAUGHT")
    put_into = mutant.file.removeprefix("simcluster/").removesuffix(".py")
    cells = [mutant.number, mutant.defect, f"`{put_into}`", f"`{mutant.algorithm}`", f"{name}: {reason}"]
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def without_numbers(text: str) -> str:
    """What does not depend on the machine: rounding differs between processors."""
    return re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?|inf|nan", "#", text)
