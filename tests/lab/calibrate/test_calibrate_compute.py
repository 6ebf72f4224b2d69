"""A calibration writes the measured work where the numbers of the part are that did it, and which part that was."""

from __future__ import annotations

from typing import Any

import pytest

from simcluster.lab.calibrate.fit import MeasuredValue
from simcluster.lab.calibrate.rounds import CalibrationRounds
from simcluster.lab.calibrate.run import Calibration, NodeFit
from simcluster.lab.calibrate.samples import ON, SampleRow, accelerator_of, sample_name
from simcluster.lab.calibrate.write import calibrated_document
from simcluster.topology import load

WORK = {"w/apply": {0: MeasuredValue(1e-3, 1e-3, 1e-3)}}
APPLY = {"w/apply": "1 ms"}
CARD = {"kind": "cuda", "flops": "14 TFLOP/s"}


def written(found: str, *, real: bool = True, **keys: Any) -> dict[str, Any]:
    """Return node a of the file after a calibration that *found* this accelerator."""
    topology = load({"nodes": {"a": keys}})
    fit = NodeFit("a", WORK, None, None, accelerator=found)
    document = calibrated_document(
        Calibration(topology, (), {}, {"a": fit}, 1.0, CalibrationRounds((), (), {}, 0), real=real)
    )
    load(document)
    node: dict[str, Any] = document["nodes"]["a"]
    return node


@pytest.mark.parametrize(("asked", "says"), [("auto", "cuda"), ("cuda", "cuda"), ("cuda:1", "cuda:1")])
def test_an_accelerators_times_are_written_into_its_numbers(asked: str, says: str) -> None:
    node = written("cuda", flops="1 GFLOP/s", accelerator=CARD, compute=asked)
    assert (node["compute"], node["accelerator"]) == (says, CARD | {"profile": APPLY})
    assert "profile" not in node


def test_auto_that_found_no_accelerator_says_cpu() -> None:
    node = written("", flops="1 GFLOP/s", accelerator=CARD, compute="auto")
    assert (node["compute"], node["profile"], node["accelerator"]) == ("cpu", APPLY, CARD)


def test_an_accelerator_without_numbers_of_its_own_gets_those_of_the_node() -> None:
    assert written("cuda", flops="1 GFLOP/s", compute="auto") == {
        "flops": "1 GFLOP/s", "compute": "cuda", "profile": APPLY
    }  # fmt: skip


def test_a_preset_keeps_its_gpu_unless_another_one_computed() -> None:
    assert written("mps", device="mac-mini-m4", compute="auto")["accelerator"] == {"profile": APPLY}
    other = written("cuda", device="raspberry-pi-5", compute="cuda")["accelerator"]
    assert (other["kind"], other["profile"]) == ("cuda", APPLY)


def test_a_simulated_calibration_leaves_what_was_asked() -> None:
    node = written("", real=False, device="mac-mini-m4", compute="auto")
    assert (node["compute"], node["accelerator"]) == ("auto", {"profile": APPLY})
    assert "compute" not in written("", flops="1 GFLOP/s")


def test_the_accelerator_is_read_from_the_samples_of_its_node() -> None:
    rows = [SampleRow(1, 0, sample_name(ON, "cuda", 1), 1.0)]
    assert [accelerator_of(rows, rank) for rank in (0, 1)] == ["", "cuda"]
