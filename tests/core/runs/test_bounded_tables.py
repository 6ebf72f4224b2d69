"""Tables from elsewhere: a file of a few kB that stands for many GB is refused before any of it is unfolded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from simcluster.errors import UsageError
from simcluster.runs.folder import METRIC_COLUMNS, METRICS, read_table
from simcluster.runs.rows import FEW_ROWS, read_rows

READERS: dict[str, Callable[[Path], Any]] = {
    "pandas": lambda folder: read_table(folder, METRICS, METRIC_COLUMNS),
    "numpy": lambda folder: read_rows(folder, METRICS, METRIC_COLUMNS),
}


def write(folder: Path, rows: int, node: str = "n0", **more: pa.Array) -> None:
    none = pa.array(np.zeros(rows, np.int32))
    columns = {
        "time_s": pa.array(np.zeros(rows)),
        "step": none,
        "node": pa.DictionaryArray.from_arrays(none, pa.array([node], pa.large_string())),
        "name": pa.DictionaryArray.from_arrays(none, pa.array(["loss"])),
        "value": pa.array(np.zeros(rows)),
        **more,
    }
    pq.write_table(pa.table(columns), folder / METRICS, store_schema=False)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("rows", "text", "found"),
    [
        (50_000, "x" * 100_000, r"50022\d+ bytes in \d+ bytes, more than 100000000"),
        (FEW_ROWS + 1, "n0", r"1000001 rows in \d+ bytes, more than 1000000"),
    ],
)
def test_a_small_file_that_stands_for_a_large_table_is_refused(
    rows: int, text: str, found: str, reader: str, tmp_path: Path
) -> None:
    write(tmp_path, rows, text)
    assert (tmp_path / METRICS).stat().st_size < 100_000
    before = pa.total_allocated_bytes()
    with pytest.raises((UsageError, ValueError), match=found):
        READERS[reader](tmp_path)
    assert pa.default_memory_pool().max_memory() < before + 100_000_000


def test_a_table_with_one_row_for_each_byte_may_be_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcluster.runs.rows.FEW_ROWS", 10)
    write(tmp_path, 1000)
    assert len(READERS["numpy"](tmp_path)) == 1000
    assert list(READERS["pandas"](tmp_path).dtypes.astype(str)) == ["float64", "int32", "str", "str", "float64"]


def test_another_column_counts_where_all_are_read(tmp_path: Path) -> None:
    nested = pa.array([[0.0] * 3] * 4)
    write(tmp_path, 4, more=nested)
    with pytest.raises(UsageError, match=r"list<.*> in column 'more'"):
        READERS["pandas"](tmp_path)
    wide = pa.array([b"x" * 5000] * 4, pa.binary(5000))
    write(tmp_path, 4, more=wide)
    with pytest.raises(UsageError, match=r"binary.* in column 'more'"):
        READERS["pandas"](tmp_path)
    assert len(READERS["numpy"](tmp_path)) == 4
