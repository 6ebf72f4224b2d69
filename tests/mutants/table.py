"""The table of mutants as docs/mutants.md has it.

This file knows Markdown. It must not know how a mutant is tried.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.mutants.trial import ROOT, Found, Mutant

FILE = ROOT / "docs" / "mutants.md"

_HEAD = """# Mutants

Known defects of real systems: versions of an algorithm that run, print a falling loss and say nothing. Each is put into
this library as a small change of its text, and `simcluster verify` must fail it and say why. Made by
`python -m tests.mutants`; `tests/test_mutants.py` tries them all and keeps this page true.

The numbers are those of a list of 51 defects. Where one number has several lines, the defect has several forms here.

"""


def page(mutants: Sequence[Mutant], found: Sequence[Found]) -> str:
    """The whole page."""
    rows = ["| no. | defect | put into | shown by | what `verify` says |", "| --- | --- | --- | --- | --- |"]
    for mutant, one in zip(mutants, found, strict=True):
        name, reason = one.failed[0] if one.failed else ("", "NOT CAUGHT")
        put_into = mutant.file.removeprefix("simcluster/").removesuffix(".py")
        cells = [mutant.number, mutant.defect, f"`{put_into}`", f"`{mutant.algorithm}`", f"{name}: {reason}"]
        rows.append("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |")
    return _HEAD + "\n".join(rows) + "\n"


def without_numbers(text: str) -> str:
    """What does not depend on the machine: rounding differs between processors."""
    return re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?|inf|nan", "#", text)
