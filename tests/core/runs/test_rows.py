"""The recorded numbers as columns: what pandas reads from the same table, and its groups."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from simcluster.errors import UsageError
from simcluster.results import Run
from simcluster.runs.rows import MetricRows
from simcluster.runs.write import write_run
from simcluster.topology import loads
from tests.support.made_up_runs import made_up_config, made_up_run, topology_document


@pytest.fixture
def run(tmp_path: Path) -> Run:
    record = made_up_run(steps=12)
    record.nodes[2].metrics[3] = record.nodes[2].metrics[3]._replace(value=math.nan)
    return Run(write_run(tmp_path, made_up_config(), loads(topology_document()), record, "0"))


def test_the_columns_are_those_of_pandas(run: Run) -> None:
    assert len(run.rows) == len(run.metrics) > 12 * 5
    for column, values in run.rows.columns.items():
        assert np.array_equal(values, run.metrics[column].to_numpy(), equal_nan=values.dtype.kind == "f")


@pytest.mark.parametrize("latest", [False, True])
def test_the_rows_of_a_step_are_one_with_their_means(run: Run, latest: bool) -> None:
    found = run.rows.named("loss").by_step(latest=latest)
    losses = run.metrics[run.metrics["name"] == "loss"]
    means = losses.groupby("step", as_index=False).agg({"time_s": "max" if latest else "mean", "value": "mean"})
    assert found["step"].tolist() == means["step"].tolist()
    assert found["time_s"] == pytest.approx(means["time_s"].to_numpy(), rel=1e-15)
    assert found["value"] == pytest.approx(means["value"].to_numpy(), rel=1e-15)


def test_a_step_without_a_number_has_none() -> None:
    columns = {"step": [2, 2, 1], "time_s": [1.0, 3.0, 2.0], "value": [math.nan, math.nan, 5.0]}
    found = MetricRows({name: np.array(values) for name, values in columns.items()}).by_step()
    assert found["step"].tolist() == [1, 2]
    assert found["time_s"].tolist() == [2.0, 2.0]
    assert found["value"][0] == 5.0
    assert math.isnan(found["value"][1])


TABLE: dict[str, Any] = {"time_s": [0.5], "step": [1], "node": ["a"], "name": ["loss"], "value": [2.0]}


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("step", [1.5], "double in column 'step'"),
        ("step", pa.array([None], pa.int64()), "int64 in column 'step'"),
        ("node", pa.array([None], pa.string()), "in column 'node'"),
        ("node", [b"a"], r"binary.* in column 'node'"),
        ("value", [{"a": 1}], "column 'value'|struct"),
        ("value", None, "no column 'value'"),
    ],
    ids=str,
)
def test_another_table_is_refused_by_column(run: Run, column: str, values: Any, words: str) -> None:
    table = {name: given for name, given in {**TABLE, column: values}.items() if given is not None}
    pq.write_table(pa.table(table), run.folder / "metrics.parquet")
    with pytest.raises(UsageError, match=words):
        _ = run.rows


def test_texts_are_read_however_they_are_stored(run: Run) -> None:
    kinds = [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
    for kind in kinds:
        names = pa.array(["b", "a", "b"], pa.string()).cast(kind)
        columns = {
            "time_s": [0.0, 1.0, 2.0],
            "step": [1, 2, 3],
            "value": [1.0, None, 3.0],
            "node": names,
            "name": names,
        }
        pq.write_table(pa.table(columns), run.folder / "metrics.parquet", row_group_size=2)
        rows = Run(run.folder).rows
        assert rows["node"].tolist() == ["b", "a", "b"]
        assert rows.named("b")["step"].tolist() == [1, 3]
        assert math.isnan(rows["value"][1])
