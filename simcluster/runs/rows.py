"""Read the recorded numbers of a run as numpy columns, without pandas, which imports slowly.

A Parquet file of a few kB can expand to many GB, since repeated values are stored once. So all
tables are read through this module, which first compares the expanded size with the file's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simcluster.paths.inside import open_file

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]

MOST_ROWS = 200_000_000
"""Limit on the rows of any table."""

FEW_ROWS = 1_000_000
"""Number of rows that a file of any size may have; a recorded number takes about 9 bytes."""

ROW_BYTES = 100
"""Limit on the bytes that a row takes in memory, on average."""


@dataclass(frozen=True, eq=False)
class MetricRows:
    """One row per recorded number: time_s, step, node, name, value; sorted by time, then rank."""

    columns: Mapping[str, npt.NDArray[Any]]

    def __len__(self) -> int:
        return len(self.columns["step"])

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        return self.columns[column]

    def where(self, which: npt.NDArray[Any] | slice) -> MetricRows:
        """Return the rows selected by *which*: a boolean per row, indices, or a slice."""
        return MetricRows({name: values[which] for name, values in self.columns.items()})

    def named(self, name: str) -> MetricRows:
        """Return the rows of the metric *name*."""
        return self.where(self["name"] == name)

    def by_step(self, *, latest: bool = False) -> MetricRows:
        """Return one row per step, with the means of its times and of its values, without NaN.

        If *latest*, the row has the latest of the times in place of their mean.
        """
        steps, group = np.unique(self["step"], return_inverse=True)
        if latest:
            time_s = np.full(len(steps), -np.inf)
            np.maximum.at(time_s, group, self["time_s"])
        else:
            time_s = _means(group, self["time_s"], len(steps))
        return MetricRows({"step": steps, "time_s": time_s, "value": _means(group, self["value"], len(steps))})


def _means(group: npt.NDArray[Any], values: FloatArray, groups: int) -> FloatArray:
    known = ~np.isnan(values)
    sums = np.bincount(group[known], values[known], groups)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / np.bincount(group[known], minlength=groups))


def read_rows(folder: Path, name: str, columns: Mapping[str, str]) -> MetricRows:
    """Return the *columns* of the Parquet table *name* in *folder*.

    *columns* maps names to the allowed kinds of numpy dtypes. Raise pyarrow's errors, OSError, or
    ValueError for a table that lacks a column or has too many rows.
    """
    found, _ = arrow_table(folder, name, columns)
    return MetricRows({column: _array(found.column(column), kinds, column) for column, kinds in columns.items()})


def arrow_table(
    folder: Path, name: str, needed: Collection[str], *, others: bool = False
) -> tuple[pa.Table, pa.Schema]:  # fmt: skip
    """Return (the Parquet table *name* in *folder*, the schema of the file).

    The table has the columns *needed* or, if *others*, all columns. String columns are
    dictionary-encoded: equal strings take the memory of one. Raise the same errors as `read_rows`.
    """
    import pyarrow.parquet as pq

    with open_file(folder, name) as file:
        size = file.seek(0, 2)
        metadata = pq.read_metadata(file)
        schema = metadata.schema.to_arrow_schema()
        columns = list(schema.names if others else needed)
        missing = [column for column in needed if column not in schema.names]
        if missing:
            raise ValueError(f"no column {missing[0]!r}")
        rows = metadata.num_rows
        most = min(MOST_ROWS, max(FEW_ROWS, size))
        if rows > most:
            raise ValueError(f"{rows} rows in {size} bytes, more than {most}")
        groups_bytes = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
        odd = [column for column in columns if not _is_plain(schema.field(column).type)]
        if odd:
            raise ValueError(f"{schema.field(odd[0]).type} in column {odd[0]!r}")
        texts = [column for column in columns if _is_text(schema.field(column).type)]
        unfolded = max(groups_bytes, 8 * rows * len(columns))
        if unfolded <= most * ROW_BYTES:
            found = pq.ParquetFile(file, read_dictionary=texts).read(columns=columns)
            unfolded += sum(_text_bytes(found.column(column)) for column in texts)
        if unfolded > most * ROW_BYTES:
            raise ValueError(f"{unfolded} bytes in {size} bytes, more than {most * ROW_BYTES}")
    return found, schema


def _text_type(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(_text_type(kind)) or pa.types.is_large_string(_text_type(kind)))


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether *kind* is a string type or takes at most 8 bytes.

    Other types have no limit on size.
    """
    import pyarrow as pa

    return _is_text(kind) or pa.types.is_null(kind) or (pa.types.is_primitive(kind) and kind.bit_width <= 64)


def _text_bytes(values: pa.ChunkedArray) -> int:
    """Return the bytes that the dictionary-encoded *values* take as separate strings."""
    import pyarrow.compute as pc

    total = 0
    for chunk in values.chunks:
        sizes = np.nan_to_num(_numbers(pc.binary_length(chunk.dictionary)))
        total += int(np.sum(sizes[_numbers(chunk.indices.drop_null())], dtype=np.int64))
    return total


def _array(values: pa.ChunkedArray, kinds: str, column: str) -> npt.NDArray[Any]:
    import pyarrow as pa

    kind = values.type
    is_text = _is_text(kind)
    found = None
    if is_text:
        found = "O"
    elif pa.types.is_floating(kind):
        found = "f"
    elif pa.types.is_integer(kind):
        found = "i"
    if found is None or found not in kinds or (values.null_count and found != "f"):
        raise ValueError(f"{kind} in column {column!r}")
    if not is_text:
        own = kind.to_pandas_dtype()
        return np.concatenate([np.empty(0, own), *[_numbers(chunk) for chunk in values.chunks]])
    parts = [chunk if isinstance(chunk, pa.DictionaryArray) else chunk.dictionary_encode() for chunk in values.chunks]
    texts = [np.array([*part.dictionary.to_pylist(), ""], dtype=object)[_numbers(part.indices)] for part in parts]
    return np.concatenate([np.empty(0, dtype=object), *texts])


def _numbers(values: pa.Array) -> npt.NDArray[Any]:
    if values.null_count:
        # This imports pandas, but only a table with missing values needs it.
        return np.asarray(values.to_numpy(zero_copy_only=False))
    own = values.type.to_pandas_dtype()
    if not len(values):
        return np.empty(0, own)
    return np.frombuffer(values.buffers()[1], own, values.offset + len(values))[values.offset :]
