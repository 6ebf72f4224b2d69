"""The final weights of a run: in its checkpoints, to the bit, without pickle, on both backends."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from simcluster_backends.sockets import run_cluster
from simcluster_backends.sockets.wire.frame import CONTROL_LIMIT_BYTES

import simcluster
from simcluster.errors import RunError, UsageError
from simcluster.experiment import read_experiment
from simcluster.job import ClusterJob
from simcluster.lab.verify import running_mean
from simcluster.paths.spool import IN_MEMORY_BYTES, PIECE_BYTES
from simcluster.runs.folder import read_safetensors
from simcluster.workloads.weights import weights_sha256
from simcluster.workloads.weights_file import WeightsFile, weights_file

EXPERIMENT: dict[str, Any] = {
    "topology": "smolcluster",
    "algorithm": "sync_ps",
    "workload": {"name": "quadratic", "batch_size": 8},
    "stop": {"steps": 5},
}


def hash_of(weights: dict[str, torch.Tensor]) -> str:
    return weights_sha256(list(weights), list(weights.values()))


def test_a_file_keeps_order_dtypes_shapes_and_bits() -> None:
    square = torch.arange(6.0).reshape(2, 3)
    given = {
        "z.weight": square.t(),  # not contiguous
        "a.weight": square[0],  # a view of the same memory
        "scalar": torch.tensor(0.1),
        "empty": torch.zeros(0, 4),
        "half": torch.tensor([0.1, float("nan")], dtype=torch.bfloat16),
        "flags": torch.tensor([True, False]),
        "turned": torch.tensor([1 + 2j], dtype=torch.complex64),
    }
    file = weights_file(list(given), list(given.values()))
    assert file is not None
    content = b"".join(file.content.pieces())
    found = read_safetensors(content)
    assert list(found) == list(given)
    assert hash_of(found) == hash_of(given)
    apart = {name: tensor.clone().contiguous() for name, tensor in given.items()}
    assert content == safetensors.torch.save(apart, {"names": json.dumps(list(given))})


def test_a_file_larger_than_memory_allows_is_filled_and_read_in_any_order() -> None:
    # 0: as large as what stays in memory, so that the file is on disk; 1: no whole number of pieces.
    given = [torch.arange(IN_MEMORY_BYTES // 4), torch.rand(PIECE_BYTES // 4 + 1), torch.ones(3)]
    file = WeightsFile(["a", "b", "c"], [torch.empty_like(tensor, device="meta") for tensor in given])
    for place in (2, 0, 1):
        assert not file.is_complete
        file.put({place: given[place]})
    assert file.is_complete
    assert all(map(torch.equal, file.tensors(), given))
    assert list(read_safetensors(b"".join(file.content.pieces()))) == ["a", "b", "c"]


def test_a_dtype_that_the_format_lacks_leaves_no_file_rather_than_a_wrong_one() -> None:
    assert weights_file(["w"], [torch.ones(2, dtype=torch.complex128)]) is None


@pytest.mark.parametrize("content", [b"", b"{]", b"\xff" * 100])
def test_what_is_no_such_file_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_safetensors(content)


def test_both_backends_leave_the_weights_that_the_summary_names(tmp_path: Path) -> None:
    runs = [simcluster.run(EXPERIMENT, backend=b, out=tmp_path / b, report=False) for b in ("sim", "sockets")]
    for run in runs:
        assert hash_of(run.weights()) == run.summary["weights_sha256"]
    assert (runs[0].folder / "checkpoints" / "final.safetensors").read_bytes() == (
        runs[1].folder / "checkpoints" / "final.safetensors"
    ).read_bytes()


def test_the_weights_fit_the_model_they_were_made_by(tmp_path: Path) -> None:
    keys = {**EXPERIMENT, "workload": {"name": "mnist_mlp", "hidden": 8}}
    run = simcluster.run(keys, out=tmp_path / "run", report=False)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 8), torch.nn.ReLU(), torch.nn.Linear(8, 10))
    assert [weight.shape for weight in run.weights().values()] == [weight.shape for weight in model.parameters()]


NORMED = {"path": f"{running_mean.__file__}:running_mean"}
WITH_BUFFERS = [
    ("all_reduce_dp", NORMED),
    ({"name": "pipeline", "order": [1, 0]}, NORMED),  # the norm is rank 1's, and rank 0 holds its stage alone
    ({"name": "expert_parallel", "bias_rate": 0.05}, {"name": "mnist_moe", "hidden": 12, "batch_size": 8}),
]


@pytest.mark.parametrize("backend", ["sim", pytest.param("sockets", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("algorithm", "workload"), WITH_BUFFERS)
def test_the_loss_of_a_run_is_that_of_its_weights_and_buffers(
    algorithm: Any, workload: dict[str, Any], backend: str, tmp_path: Path
) -> None:
    keys = {"topology": {"generator": "star", "workers": 2}, "algorithm": algorithm, "stop": {"steps": 3}}
    done = simcluster.run(keys, workload=workload, backend=backend, out=tmp_path / "run", report=False)
    assert hash_of(done.weights()) == done.summary["weights_sha256"], "buffers are no part of either"
    bare = tmp_path / "bare.safetensors"
    safetensors.torch.save_file(done.weights(), bare)
    for file, has_buffers in ((done.folder, True), (bare, False)):
        begun = read_experiment({**done.config, "workload": {**workload, "weights": str(file)}})
        for in_parts in (False, True):
            replica = begun.workload.replica(0, 2, begun.seed, 1, in_parts=in_parts)
            assert (replica.evaluate()["loss"] == done.summary["loss"]) is has_buffers


def test_weights_larger_than_any_message_reach_the_launcher() -> None:
    size_bytes = CONTROL_LIMIT_BYTES + 1
    record = run_cluster(ClusterJob(["a", "b"], str(size_bytes), program="tests.support.node_programs:heavy"))
    assert record.error is None
    found = record.nodes[0].weights
    assert found is not None
    assert found.size_bytes == size_bytes
    assert hashlib.sha256(b"".join(found.pieces())).hexdigest() == record.nodes[0].weights_sha256
    assert record.nodes[1].weights is None


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "at"), [("sim", "200 ms"), ("sockets", "4 s")])  # a loaded machine begins late
def test_a_failed_run_leaves_the_weights_it_had(backend: str, at: str, tmp_path: Path) -> None:
    # Worker pi4 dies; rank 0 waits for it, fails, and hands in what it has.
    faults = [{"kind": "crash", "node": "pi4", "at": at}]
    keys = {**EXPERIMENT, "algorithm": "zero", "stop": {"steps": 100_000}, "faults": faults}
    with pytest.raises(RunError):
        simcluster.run(keys, backend=backend, out=tmp_path / "run", report=False)
    run = simcluster.load_run(tmp_path / "run")
    assert run.summary["status"] == "failed"
    assert run.summary["steps"] > 0
    assert hash_of(run.weights()) == run.summary["weights_sha256"]


def test_a_run_that_left_no_weights_says_why(tmp_path: Path) -> None:
    run = simcluster.run(EXPERIMENT, out=tmp_path / "run", report=False)
    (run.folder / "checkpoints" / "final.safetensors").write_bytes(b"torn")
    with pytest.raises(UsageError, match="weights in the format safetensors"):
        run.weights()
    (run.folder / "checkpoints" / "final.safetensors").unlink()
    with pytest.raises(UsageError, match="none in its checkpoints"):
        run.weights()
