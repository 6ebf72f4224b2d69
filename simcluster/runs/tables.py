"""Tables of a run directory: checked for size before they are loaded, and for the columns that readers need.

pandas is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from simcluster.errors import Problem, UsageError
from simcluster.paths.inside import open_file

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS: Final = 200_000_000
METRIC_COLUMNS: Final = {"time_s": "f", "step": "iu", "node": "OTU", "name": "OTU", "value": "f"}
SAMPLE_COLUMNS: Final = {"epoch": "iu", "sample": "iu", "node": "OTU", "used": "iu", "lost": "iu"}
"""Column -> its permitted numpy kinds."""


def read_table(folder: Path, name: str, columns: Mapping[str, str], what: str = "a Parquet table") -> pd.DataFrame:
    """Return the table *name* in *folder*. Raises UsageError, which names *what*, unless it has *columns*."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_file(folder, name) as file:
            rows = pq.ParquetFile(file).metadata.num_rows
            if rows > MOST_ROWS:
                raise ValueError(f"{rows} rows, more than {MOST_ROWS}")
            file.seek(0)
            found = pd.read_parquet(file)
        for column, kinds in columns.items():
            if column not in found:
                raise ValueError(f"no column {column!r}")
            if getattr(found[column].dtype, "kind", "O") not in kinds:
                raise ValueError(f"{found[column].dtype} in column {column!r}")
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
        raise UsageError(Problem(name, f"something else in {folder / name}", f"{what} ({error})")) from error
    return found
