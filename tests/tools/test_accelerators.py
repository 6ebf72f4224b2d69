"""The program for machines with an accelerator: rows survive whatever a part does, and it runs on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.root import ROOT
from tools import accelerators
from tools.accelerator_parts.children import processes
from tools.accelerator_parts.context import PartContext
from tools.accelerator_parts.rows import HEADS, Skipped, measured, read, start
from tools.accelerators import PARTS, Part, run_part

HERE = "tests.tools.test_accelerators"
LIMIT_S = 480.0


def well(at: PartContext) -> None:
    with measured(at.table, "well", "unit") as row:
        row.value = "1"


def fail(error: Exception) -> None:
    raise error


def raises(at: PartContext) -> None:
    with measured(at.table, "before") as row:
        row.value = "2"
    with measured(at.table, "raises"):
        fail(ValueError("two\nlines"))
    with measured(at.table, "refused"):
        fail(Skipped("no card"))


def crashes(at: PartContext) -> None:
    with measured(at.table, "first"):
        pass
    os._exit(3)


def hangs(at: PartContext) -> None:
    """Start a process in a session of its own, as a node is, and wait for it."""
    with measured(at.table, "first"):
        pass
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    (at.folder / "started").write_text(str(process.pid))
    process.wait()


@pytest.fixture
def at(tmp_path: Path) -> PartContext:
    start(tmp_path / "table.csv")
    return PartContext("cpu", tmp_path, tmp_path / "table.csv", None)


def rows(at: PartContext) -> list[tuple[str, str, str, str]]:
    return [(row["part"], row["value"], row["status"], row["why"]) for row in read(at.table)]


def run_all(at: PartContext, *names: str, limit_s: float = 60.0) -> None:
    for name in names:
        run_part(name, Part(f"{HERE}:{name}", limit_s), at)


def test_all_parts_together_end_in_eight_minutes() -> None:
    assert sum(part.limit_s for part in PARTS.values()) < LIMIT_S


@pytest.mark.slow
def test_a_part_that_fails_or_crashes_leaves_its_rows_and_does_not_stop_the_others(at: PartContext) -> None:
    run_all(at, "raises", "crashes", "well")
    assert rows(at) == [
        ("before", "2", "ok", ""),
        ("raises", "", "failed", "ValueError: two lines"),
        ("refused", "", "skipped", "no card"),
        ("first", "", "ok", ""),
        ("crashes", "", "failed", "the process of this part ended with 3"),
        ("well", "1", "ok", ""),
    ]
    assert list(read(at.table)[0]) == HEADS == ["part", "value", "unit", "status", "seconds", "why"]


@pytest.mark.slow
def test_a_part_that_hangs_is_killed_with_all_that_it_started(at: PartContext) -> None:
    # To import this module takes seconds on a busy machine; 600 s are what the part would take.
    run_all(at, "hangs", limit_s=20.0)
    assert rows(at) == [("first", "", "ok", ""), ("hangs", "", "failed", "cut off at its limit of 20 s")]
    number = int((at.folder / "started").read_text())
    deadline_s = time.monotonic() + 60
    while number in dict(processes()) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert number not in dict(processes())


@pytest.mark.exhaustive
def test_the_parts_run_on_a_cpu(tmp_path: Path) -> None:
    """Two of them; `python -m tools.accelerators --device cpu` runs all in two minutes."""
    table = tmp_path / "table.csv"
    words = [sys.executable, "-m", "tools.accelerators", "--device", "cpu", "--table", str(table)]
    done = subprocess.run([*words, "--only", "card", "generate"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {row["part"]: row for row in read(table)}
    assert {row["status"] for row in found.values()} == {"ok"}
    assert (found["same tokens f32"]["value"], found["same tokens f32"]["unit"]) == ("64", "of 64")
    assert float(found["generate f32"]["value"]) > 0
    assert float(found["transformers bf16"]["value"]) > 0


def test_a_wrong_part_is_refused_before_a_table_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        accelerators.main(["--only", "sockts", "--table", str(tmp_path / "table.csv")])
    assert "invalid choice: 'sockts'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
