"""73 mistakes that new users make, each with its answer: the place, what was found, what to write instead."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.root import ROOT
from tests.whole.first_ten_minutes import code_and_data, names, own_code
from tests.whole.first_ten_minutes.row import ALGORITHM, MODEL, NAMES, PYTHON, Row

ROWS = (*names.ROWS, *own_code.ROWS, *code_and_data.ROWS)


def test_the_table_has_the_73_mistakes_of_all_groups_and_at_least_nine_in_ten_are_good() -> None:
    assert Counter(row.group for row in ROWS) == {NAMES: 34, ALGORITHM: 20, MODEL: 10, PYTHON: 9}
    assert len({row.name for row in ROWS}) == 73
    assert {row.area for row in ROWS} == {"start", "warnings", "objects", "data"}
    assert sum(row.good for row in ROWS) >= 0.9 * len(ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_mistake_has_a_good_answer(row: Row, command: Any, tmp_path: Path) -> None:
    for name, text in row.files.items():
        (tmp_path / name).write_text(text)
    if row.script or row.area == "warnings":
        code, text = _apart(row, tmp_path)
    else:
        code, text = _command(command, row.command)
    assert code == row.code, text
    assert [words for words in (row.place, *row.says) if words not in text] == [], text
    if row.command and not row.script:
        assert "Traceback" not in text
    if code == 2:  # refused: nothing is written
        written = {path.name for path in tmp_path.iterdir()} - {"__pycache__", "main.py"}
        assert written == set(row.files)


def _command(command: Any, words: tuple[str, ...]) -> tuple[int, str]:
    code, out, err = command(*words)
    return code, out + err


def _apart(row: Row, folder: Path) -> tuple[int, str]:
    """Run the script or the command of *row* as a user would, in a process in *folder*: warnings are its log."""
    words = ["-m", "simcluster", *row.command]
    if row.script:
        (folder / "main.py").write_text(row.script)
        words = ["main.py"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr
