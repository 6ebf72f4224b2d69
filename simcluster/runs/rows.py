"""The recorded numbers of a run as columns of numpy: pandas takes longer to import than a report takes to write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simcluster.paths.inside import open_file

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rows:
    """One row per number recorded by a node: time_s, step, node, name, value; by time, then rank."""

    columns: Mapping[str, npt.NDArray[Any]]

    def __len__(self) -> int:
        return len(self.columns["step"])

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        return self.columns[column]

    def where(self, which: npt.NDArray[Any] | slice) -> Rows:
        """Return the rows that *which* selects: a truth value for each, their places, or a slice."""
        return Rows({name: values[which] for name, values in self.columns.items()})

    def named(self, name: str) -> Rows:
        """Return the rows of the metric *name*."""
        return self.where(self["name"] == name)

    def by_step(self, *, latest: bool = False) -> Rows:
        """Return one row per step with the mean of its times, or the *latest* of them, and the mean of its values;
        values that are not numbers are left out.
        """
        steps, group = np.unique(self["step"], return_inverse=True)
        if latest:
            time_s = np.full(len(steps), -np.inf)
            np.maximum.at(time_s, group, self["time_s"])
        else:
            time_s = _means(group, self["time_s"], len(steps))
        return Rows({"step": steps, "time_s": time_s, "value": _means(group, self["value"], len(steps))})


def _means(group: npt.NDArray[Any], values: FloatArray, groups: int) -> FloatArray:
    known = ~np.isnan(values)
    sums = np.bincount(group[known], values[known], groups)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / np.bincount(group[known], minlength=groups))


def read_rows(folder: Path, name: str, columns: Mapping[str, str], most_rows: int) -> Rows:
    """Return the *columns*, name -> numpy kinds, of the Parquet table *name* in *folder*.

    Raises what pyarrow does, OSError, or ValueError for a table without them or with more than *most_rows*.
    """
    import pyarrow.parquet as pq

    with open_file(folder, name) as file:
        table = pq.ParquetFile(file, read_dictionary=[column for column, kinds in columns.items() if "O" in kinds])
        if table.metadata.num_rows > most_rows:
            raise ValueError(f"{table.metadata.num_rows} rows, more than {most_rows}")
        missing = [column for column in columns if column not in table.schema_arrow.names]
        if missing:
            raise ValueError(f"no column {missing[0]!r}")
        found = table.read(columns=list(columns))
    return Rows({column: _array(found.column(column), kinds, column) for column, kinds in columns.items()})


def _array(values: pa.ChunkedArray, kinds: str, column: str) -> npt.NDArray[Any]:
    import pyarrow as pa

    kind = values.type
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = pa.types.is_string(text) or pa.types.is_large_string(text)
    found = "O" if is_text else "f" if pa.types.is_floating(kind) else "i" if pa.types.is_integer(kind) else None
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
        return np.asarray(values.to_numpy(zero_copy_only=False))  # which imports pandas
    own = values.type.to_pandas_dtype()
    if not len(values):
        return np.empty(0, own)
    return np.frombuffer(values.buffers()[1], own, values.offset + len(values))[values.offset :]
