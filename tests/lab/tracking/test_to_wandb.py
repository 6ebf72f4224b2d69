"""Weights & Biases, offline: the file that would be uploaded, read with its own records. Skipped where it is not
installed."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simcluster.lab.tracking.handover import hand_over
from tests.lab.tracking.tracked import run_of_500, small_run

pytestmark = pytest.mark.filterwarnings("ignore")

BLOCK, HEADER = 32768, 7


@pytest.fixture(scope="module")
def records_of() -> Any:
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    pytest.importorskip("wandb")
    pb = pytest.importorskip("wandb.proto.wandb_internal_pb2")

    def read(path: Path) -> Iterator[Any]:
        """Records of a log as LevelDB has it: blocks, in them pieces with checksum, length and kind."""
        data, at, whole = path.read_bytes(), HEADER, b""
        assert data[:4] == b":W&B"
        while at + HEADER <= len(data):
            if (left := BLOCK - at % BLOCK) < HEADER:
                at += left
                continue
            _, length, kind = struct.unpack_from("<IHB", data, at)
            whole += data[at + HEADER : at + HEADER + length]
            at += HEADER + length
            if kind in (1, 4):
                yield pb.Record.FromString(whole)
                whole = b""

    return read


def test_five_hundred_scalars_are_read_back(records_of: Any, tmp_path: Path) -> None:
    run = run_of_500(tmp_path / "run")
    assert run.track("wandb", str(tmp_path / "w")).written == 1
    (path,) = (tmp_path / "w").rglob("*.wandb")
    records = list(records_of(path))
    (begun,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert (begun.run_id, begun.display_name, begun.project) == (hand_over(run).id, "sync_ps-pair-b32-7", "quickstart")
    values = {
        (item.nested_key[0] if item.nested_key else item.key, record.history.step.num): json.loads(item.value_json)
        for record in records
        if record.WhichOneof("record_type") == "history"
        for item in record.history.item
    }
    assert sum(name.startswith("m") for name, _ in values) == 500
    assert values["m2", 30] == 32
    assert values["time_s", 30] == pytest.approx(0.3)
    assert {file.name for file in path.parent.joinpath("files", "run").iterdir()} == {"config.yaml", "summary.json"}


def test_the_same_run_twice_is_there_once(records_of: Any, tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", failed=True)
    assert [run.track("wandb", str(tmp_path / "w")).written for _ in range(2)] == [1, 0]
    (path,) = (tmp_path / "w").rglob("*.wandb")
    (end,) = [record.exit for record in records_of(path) if record.WhichOneof("record_type") == "exit"]
    assert end.exit_code == 1
    assert not list((tmp_path / "w" / "wandb").glob(".partial-*"))
