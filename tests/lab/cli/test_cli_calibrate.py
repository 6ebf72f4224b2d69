"""The command `simcluster calibrate`: what it prints and writes, and that a wrong request measures nothing."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from simcluster.topology import load
from tests.lab.calibrate.test_calibrate import CHAIN


@pytest.fixture
def calibrate(command: Any, tmp_path: Path) -> Any:
    """Runs `simcluster calibrate` where lab.yaml is."""
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump(CHAIN))
    return partial(command, "calibrate")


@pytest.mark.slow
def test_it_writes_a_topology_and_says_what_it_measured(calibrate: Any, tmp_path: Path) -> None:
    size = ("--backend", "sim", "--workload", "quadratic", "--set", "workload.features=4")
    code, out, err = calibrate("lab.yaml", *size)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "lab-measured.yaml"
    assert "link a-b: 1 ms, 80 Mbps" in out
    written = load(tmp_path / "lab-measured.yaml")
    assert written.links[0].ack_share == pytest.approx(0.1)
    code, out, _ = calibrate("lab.yaml", *size, "--out", "other.yaml", "--json")
    assert code == 0
    assert load(json.loads(out)) == load(tmp_path / "other.yaml") == written


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lab.yaml", "--out", "lab.yaml"], "a file other than the one that is measured"),
        (["lab.yaml", "--out", "nowhere/m.yaml"], "choose a folder that exists"),
        (["lab.yaml", "--workload", "mnist"], "mnist_mlp"),
        (["lab.yaml", "--set", "workload.hidden=none"], "workload.hidden"),
        (["lab.yml"], "lab.yml"),
        (["lab.yaml", "--backend", "smi"], "did you mean 'sim'"),
    ],
)
def test_a_wrong_request_is_told_before_anything_is_measured(
    calibrate: Any, tmp_path: Path, arguments: list[str], words: str
) -> None:
    code, out, err = calibrate(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert [path.name for path in tmp_path.iterdir()] == ["lab.yaml"]
