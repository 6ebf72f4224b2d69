"""A folder of stored measurements, with one file for each run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import msgspec

from tools.memory_table.answering import Held
from tools.memory_table.cases import ALGORITHMS, EVALUATIONS, SIZES, Row


class Kept:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def forget(self) -> None:
        for path in self._folder.glob("*.json"):
            path.unlink()

    def rows(self, algorithm: str, size: str, rows: list[Row]) -> None:
        self._file(algorithm, size).write_bytes(msgspec.json.encode([asdict(row) for row in rows]))

    def evaluated(self, count: int, grown_bytes: int) -> None:
        self._file("evaluations", str(count)).write_bytes(msgspec.json.encode(grown_bytes))

    def answered(self, rows: list[Held]) -> None:
        self._file("answering", "prompts").write_bytes(msgspec.json.encode(rows))

    def all_answered(self) -> list[Held]:
        """Return the rows about inference, or none if inference was not measured."""
        file = self._file("answering", "prompts")
        return msgspec.json.decode(file.read_bytes(), type=list[Held]) if file.is_file() else []

    def all_rows(self) -> list[Row]:
        """Return all training rows in the order of the table."""
        files = [self._file(algorithm, size) for size in SIZES for algorithm in ALGORITHMS]
        return [
            row for file in files if file.is_file() for row in msgspec.json.decode(file.read_bytes(), type=list[Row])
        ]

    def flat(self) -> tuple[int, int] | None:
        """Return (growth over few evaluations, growth over many), or None if either is missing."""
        files = [self._file("evaluations", str(count)) for count in EVALUATIONS]
        if not all(file.is_file() for file in files):
            return None
        few, many = (msgspec.json.decode(file.read_bytes(), type=int) for file in files)
        return few, many

    def missing(self) -> list[str]:
        """Return the runs of the table that have not been measured yet."""
        runs = [(algorithm, size) for size in SIZES for algorithm in ALGORITHMS]
        runs += [(str(count), "evaluations") for count in EVALUATIONS]
        files = {run: self._file(*(run if run[1] in SIZES else reversed(run))) for run in runs}
        return [" of ".join(run) if run[1] in SIZES else " ".join(run) for run in runs if not files[run].is_file()]

    def _file(self, what: str, which: str) -> Path:
        return self._folder / f"{what} {which}.json"
