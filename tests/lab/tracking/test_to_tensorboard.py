"""TensorBoard: the event files, read back record by record, checksums and all."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from simcluster.lab.tracking.handover import hand_over
from simcluster.lab.tracking.to_tensorboard import TensorboardTracker
from tests.lab.tracking.tracked import run_of_500, small_run

event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
hparams_pb2 = pytest.importorskip("tensorboardX.proto.plugin_hparams_pb2")


def masked(data: bytes) -> int:
    """The checksum of TFRecord."""
    value = int.from_bytes(google_crc32c.Checksum(data).digest(), "big")
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events(folder: Path) -> Iterator[Any]:
    (path,) = folder.glob("events.out.tfevents.*")
    data, at = path.read_bytes(), 0
    while at < len(data):
        length, of_length = struct.unpack_from("<QI", data, at)
        body = data[at + 12 : at + 12 + length]
        assert of_length == masked(data[at : at + 8])
        assert struct.unpack_from("<I", data, at + 12 + length) == (masked(body),)
        yield event_pb2.Event.FromString(body)
        at += 16 + length


def scalars(folder: Path) -> dict[tuple[str, int], tuple[float, float]]:
    """(name, step) -> (time, value)."""
    return {
        (value.tag, event.step): (event.wall_time, value.simple_value)
        for event in events(folder)
        for value in event.summary.value
        if value.HasField("simple_value")
    }


def test_five_hundred_scalars_are_read_back_with_their_steps_and_times(tmp_path: Path) -> None:
    run = run_of_500(tmp_path / "run")
    assert run.track("tensorboard", str(tmp_path / "tb")).written == 1
    folder = tmp_path / "tb" / "quickstart" / "sync_ps-pair-b32-7" / hand_over(run).id[:8]
    found = scalars(folder)
    assert sum(name.startswith("m") for name, _ in found) == 500
    assert found["m2", 30][1] == 32
    assert found["m2", 30][0] - found["m2", 10][0] == pytest.approx(0.2, abs=1e-6)
    assert found["summary/elapsed_s", 100][1] == 1
    tags = [value.tag for event in events(folder) for value in event.summary.value]
    assert "_hparams_/session_start_info" in tags
    assert "config/text_summary" in tags


def test_the_same_run_twice_is_there_once_and_another_beside_it(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", failed=True)
    into = tmp_path / "tb"
    assert [run.track("tensorboard", str(into)).written for _ in range(2)] == [1, 0]
    other = small_run(tmp_path / "run", seed=8)
    assert other.track("tensorboard", str(into)).written == 1
    files = sorted(path.relative_to(into).parts[:2] for path in into.rglob("events.*"))
    assert files == [("quickstart", "sync_ps-pair-b32-7"), ("quickstart", "sync_ps-pair-b32-8")]
    (folder,) = (into / "quickstart" / "sync_ps-pair-b32-7").iterdir()
    assert math.isnan(scalars(folder)["loss", 2][1])


def test_of_a_sweep_the_table_of_runs_has_what_was_swept(tmp_path: Path) -> None:
    run = hand_over(small_run(tmp_path / "run"), "pulls", ("algorithm.pull_interval",))
    assert TensorboardTracker(str(tmp_path / "tb")).write(run)
    (folder,) = (tmp_path / "tb" / "pulls" / "sync_ps-pair-b32-7").iterdir()
    (start,) = [
        value.metadata.plugin_data.content
        for event in events(folder)
        for value in event.summary.value
        if value.tag == "_hparams_/session_start_info"
    ]
    hparams = hparams_pb2.HParamsPluginData.FromString(start).session_start_info.hparams
    assert {name: hparams[name].number_value for name in hparams} == {"algorithm.pull_interval": 1, "seed": 7}


def test_what_a_crash_left_half_written_is_written_anew(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    place = tmp_path / "tb" / "quickstart" / "sync_ps-pair-b32-7"
    partial = place / f".partial-{hand_over(run).id[:8]}"
    partial.mkdir(parents=True)
    (partial / "events.out.tfevents.0.old").touch()
    assert run.track("tensorboard", str(tmp_path / "tb")).written == 1
    assert [path.name for path in place.iterdir()] == [hand_over(run).id[:8]]
