"""Which kernels a run was computed by, and portable ones: the same bits on processors of unlike capability."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import simcluster
from simcluster.errors import UsageError
from simcluster.process.kernels import PORTABLE, heed_portable, numerics
from tests.support.root import ROOT

EXPERIMENT: dict[str, Any] = {
    "topology": {"generator": "star", "workers": 2},
    "algorithm": "all_reduce_dp",
    "workload": {"name": "mnist_mlp", "hidden": 32},
    "stop": {"steps": 3},
}
RUNS = """
import json, sys
import simcluster
experiment, options, out, *backends = (json.loads(word) for word in sys.argv[1:])
for backend in backends:
    run = simcluster.run(experiment, backend=backend, options=options, out=f"{out}/{backend}", report=False)
    print(json.dumps({key: run.summary.get(key) for key in ("weights_sha256", "portable", "nodes")}))
"""
AS_OLD = {"ATEN_CPU_CAPABILITY": "default", "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F"}
"""A process on a processor that has none of the wide instructions, as far as an environment can say so."""


def runs(folder: Path, options: dict[str, Any], environment: dict[str, str], *backends: str) -> list[dict[str, Any]]:
    """Return the findings of a new process with *environment*, on each of *backends*."""
    own = {name: value for name, value in os.environ.items() if name not in PORTABLE}
    words = [json.dumps(word) for word in (EXPERIMENT, options, str(folder), *backends)]
    command = [sys.executable, "-c", RUNS, *words]
    done = subprocess.run(command, cwd=ROOT, env=own | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_portable_kernels_make_unlike_capabilities_agree(tmp_path: Path) -> None:
    """And so on every backend, whose nodes hear of it in their own processes."""
    here = runs(tmp_path / "here", {"portable": True}, {}, "sim", "sockets", "torch")
    old = runs(tmp_path / "old", {"portable": True}, AS_OLD, "sim")
    assert len({run["weights_sha256"] for run in [*here, *old]}) == 1
    assert {run["portable"] for run in [*here, *old]} == {True}
    for run in here:
        for node in run["nodes"].values():
            assert node["numerics"]["cpu_capability"] == "DEFAULT"
            assert "MKL_CBWR=COMPATIBLE" in node["numerics"]["blas"]


@pytest.mark.slow
def test_without_them_unlike_capabilities_may_differ_and_each_says_which_it_was(tmp_path: Path) -> None:
    native = simcluster.run(EXPERIMENT, out=tmp_path / "here", report=False).summary
    (old,) = runs(tmp_path / "old", {}, AS_OLD, "sim")
    if torch.backends.cpu.get_cpu_capability() == "AVX512":  # with which this test was written
        assert native["weights_sha256"] != old["weights_sha256"]
    said = [node["numerics"] for run in (native, old) for node in run["nodes"].values()]
    assert [one["cpu_capability"] for one in said] == [torch.backends.cpu.get_cpu_capability()] * 2 + ["DEFAULT"] * 2
    assert said[0] == numerics()
    assert native.get("portable") is old["portable"] is None


def test_a_process_that_has_computed_already_is_refused_with_the_variables_to_set(tmp_path: Path) -> None:
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("this processor has no other kernels")
    before = dict(os.environ)
    torch.ones(8, 8) @ torch.ones(8, 8)
    expected = "ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41"
    with pytest.raises(UsageError, match=expected):
        simcluster.run(EXPERIMENT, options={"portable": True}, out=tmp_path / "run")
    assert dict(os.environ) == before
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_product_that_only_mkl_has_computed_is_noticed_too() -> None:
    """torch chooses its own kernels later than that."""
    code = (
        "import numpy, torch; a = torch.from_numpy(numpy.ones((64, 64), 'f')); a @ a\n"
        "from simcluster.process.kernels import heed_portable; heed_portable({'portable': True})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    if "MKL" in numerics()["blas"]:
        assert "torch has computed already" in done.stderr


def test_another_kind_of_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UsageError, match="portable: found true on aarch64, expected x86-64 on every node"):
        heed_portable({"portable": True})


@pytest.mark.parametrize("backend", ["sim", "sockets", "torch"])
def test_portable_is_true_or_false(backend: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"portable: found 1, expected (true or false|bool)"):
        simcluster.run(EXPERIMENT, backend=backend, options={"portable": 1}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_what_computes_nothing_has_no_kernels(tmp_path: Path) -> None:
    run = simcluster.run(EXPERIMENT | {"numerics": "none"}, out=tmp_path / "run", report=False)
    assert all("numerics" not in node for node in run.summary["nodes"].values())
    code = RUNS.replace("report=False", "report=False, overrides={'numerics': 'none'}")
    words = [json.dumps(word) for word in (EXPERIMENT, {"portable": True}, str(tmp_path / "none"), "sim")]
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True)
    assert "portable: found true with numerics: none" in done.stderr
