"""Columns of Parquet files hold what pyarrow's own conversion would, without importing pandas for it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa

from simcluster.runs import arrow_columns


def test_columns_are_those_of_pyarrows_own_conversion() -> None:
    names = ["mini1", "Zoë", "", "mini1"]
    assert arrow_columns.texts(names) == pa.array(names, pa.large_string())
    assert arrow_columns.categories(names).to_pylist() == names
    assert arrow_columns.categories(names).dictionary.to_pylist() == ["", "Zoë", "mini1"]
    assert arrow_columns.floats([0.5, float("inf"), -2]) == pa.array([0.5, float("inf"), -2], pa.float64())
    assert arrow_columns.whole((1, -(2**40))) == pa.array([1, -(2**40)], pa.int64())
    assert arrow_columns.whole(np.arange(6)[::2], 32) == pa.array([0, 2, 4], pa.int32())


def test_columns_may_be_empty() -> None:
    made = (arrow_columns.texts([]), arrow_columns.floats([]), arrow_columns.whole([]), arrow_columns.categories([]))
    for column in made:
        column.validate(full=True)
        assert len(column) == 0


def test_writing_them_imports_no_pandas() -> None:
    code = (
        "import io, sys, pyarrow as pa, pyarrow.parquet as pq\n"
        "from simcluster.runs import arrow_columns as a\n"
        "columns = [a.texts(['x']), a.floats([1]), a.whole([1]), a.categories(['y'])]\n"
        "pq.write_table(pa.Table.from_arrays(columns, names=list('abcd')), io.BytesIO())\n"
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
