"""What nodes note, and the one hash over it: whatever a node did changes it, also if the node never ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import simcluster
from simcluster.runs.record import RunRecord
from simcluster.runs.recorder import Recorder
from simcluster.transport import OWN_TAGS

OWN = """
import asyncio

from simcluster import Cost


async def doomed(node, replica, *, pieces: int, note: float):
    if node.rank == 1:
        for _ in range(pieces):
            await node.compute(lambda: None, cost=Cost(1e6))
        node.record(step=1, note=note)
        await asyncio.sleep(3600)
    await asyncio.sleep(1)
"""


def trace(*changes: Callable[[Recorder], object], end: bool) -> str:
    recorder = Recorder(0, "a", lambda: 1.0)
    for change in changes:
        change(recorder)
    if end:
        recorder.finish("0" * 64)
    return RunRecord([recorder.record], 1.0, 0.1).trace_sha256


@pytest.mark.parametrize("end", [True, False], ids=["a node that ended", "a node that died"])
def test_all_that_a_node_did_is_in_the_hash(end: bool) -> None:
    deeds: list[Callable[[Recorder], object]] = [
        lambda node: None,
        lambda node: node.span("compute", 0.0, 1.0, -1, "", 0),
        lambda node: node.span("compute", 0.0, 1.0 + 2**-52, -1, "", 0),
        lambda node: node.span("send", 0.0, 1.0, 1, "x", 8),
        lambda node: node.metrics(1, {"loss": 0.5}),
        lambda node: node.metrics(2, {"loss": 0.5}),
        lambda node: node.sent(1, 8),
        lambda node: node.received(8),
    ]
    hashes = [trace(deed, end=end) for deed in deeds]
    assert len(set(hashes)) == len(deeds)
    assert [trace(deed, end=end) for deed in deeds] == hashes


@pytest.mark.slow
def test_two_runs_that_differ_only_in_what_a_crashed_node_did_have_different_traces(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)

    def trace_of(pieces: int, note: float) -> str:
        run = simcluster.run(
            topology="thunderbolt-mesh-4",
            algorithm={"path": f"{tmp_path}/own.py:doomed", "pieces": pieces, "note": note},
            workload={"name": "quadratic", "batch_size": 8},
            stop={"steps": 1},
            faults=[{"kind": "crash", "node": "mini2", "at": "500 ms"}],
            out=tmp_path / "run",
            report=False,
        )
        assert list(run.summary["lost"]) == ["mini2"]
        return str(run.summary["trace_sha256"])

    seen = [trace_of(1, 0.5), trace_of(2, 0.5), trace_of(1, 0.25)]
    assert len(set(seen)) == 3
    assert trace_of(1, 0.5) == seen[0]


def test_what_is_no_number_is_told_by_name() -> None:
    recorder = Recorder(0, "a", lambda: 1.0)
    with pytest.raises(TypeError, match="a metric is one number, and 'loss' is str 'high'"):
        recorder.metrics(1, {"loss": "high"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="'loss' is Tensor"):
        recorder.metrics(1, {"loss": torch.zeros(2)})  # type: ignore[dict-item]
    recorder.metrics(1, {"loss": torch.tensor(0.5)})  # type: ignore[dict-item]
    assert [metric.value for metric in recorder.record.metrics] == [0.5]


def test_what_the_library_listens_for_beside_the_algorithm_is_no_waiting() -> None:
    recorder = Recorder(0, "n0", lambda: 0.0)
    recorder.span("recv", 1.0, 3.0, 1, f"{OWN_TAGS}regroup", 8)
    recorder.span("recv", 1.0, 3.0, 1, "gradients", 8)
    assert [(span.start_s, span.end_s) for span in recorder.record.spans] == [(3.0, 3.0), (1.0, 3.0)]
