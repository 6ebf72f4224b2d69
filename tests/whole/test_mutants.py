"""Known defects that are put into the library are found by `verify`, which finds nothing where they are not; and
the table of mutants says so."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from simcluster.lab.verify import verify
from tools.mutants.defects import FIRST, MUTANTS
from tools.mutants.table import COLUMNS, FILE, row
from tools.mutants.trial import ROOT, Found, Mutant
from tools.tables import read


def tried() -> list[Found]:
    """In a process of its own, which must not have imported the library."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.mutants", "--json"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return [Found(**one) for one in found]


@pytest.mark.slow
def test_a_mutant_for_each_check_is_caught_and_the_table_says_by_what() -> None:
    told = read(FILE)
    for mutant, one in zip(FIRST, tried(), strict=True):
        assert not one.trouble, f"{mutant.number}, {mutant.defect}: {one.trouble}"
        assert one.caught, f"{mutant.number}: {mutant.defect}"
        assert row(mutant, one) in told, "run python -m tools.mutants"


def test_every_mutant_can_be_put_into_the_library_and_has_its_row_in_the_table() -> None:
    head, *told = read(FILE)
    assert head == list(COLUMNS)
    assert [cells[:4] for cells in told] == [row(mutant, Found([]))[:4] for mutant in MUTANTS], (
        "run python -m tools.mutants"
    )
    assert all(cells[4] not in ("", "NOT CAUGHT") for cells in told)
    for mutant in MUTANTS:
        mutant.put_into((ROOT / mutant.file).read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_library_as_it_is_passes_what_the_mutants_fail() -> None:
    for asked in {f"{mutant.algorithm} {mutant.options}": mutant for mutant in FIRST}.values():
        found = verify(asked.algorithm, **asked.options)
        assert found.ok, found.table()
        assert {check.verdict for check in found.checks} != {"not claimed"}, found.table()


def test_the_defects_of_the_list_are_there_but_one_that_is_no_algorithms() -> None:
    numbers = {int(mutant.number) for mutant in MUTANTS if mutant.number}
    assert set(range(1, 28)) - numbers == {20}, "20 is a latency that the command never applies"


def test_a_text_that_is_not_there_once_is_an_error() -> None:
    mutant = Mutant("0", "", "file.py", "old", "new", "edp", "learns")
    assert mutant.put_into("an old text") == "an new text"
    for text in ("a text", "old and old"):
        with pytest.raises(ValueError, match=r"file\.py has \d times, not once: 'old'"):
            mutant.put_into(text)
