"""What this machine cannot hold is refused with what to do, before it is tried; what can be asked about, is."""

from typing import Any

import pytest
import torch
from torch import nn

from simcluster.errors import UsageError
from simcluster.experiment.read import fit
from simcluster.experiment.read.fit import check_host
from simcluster.experiment.read.read import read_experiment
from simcluster.workloads import Workload, gpt, mnist_mlp, quadratic, sgd


def test_weights_and_gradients_of_all_replicas_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = gpt()
    assert workload.weights_bytes == 4 * 119_104
    # Two of these for each of 10 replicas: 9,528,320 bytes.
    monkeypatch.setattr(fit, "memory_bytes", lambda: 9_528_320)
    check_host(workload, 10)
    monkeypatch.setattr(fit, "memory_bytes", lambda: 9_528_319)
    with pytest.raises(UsageError, match=r"weights and gradients of 10 replicas are 9.528 MB, expected none, which"):
        check_host(workload, 10)


def test_of_a_workload_that_does_not_know_its_size_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "memory_bytes", lambda: 1)
    samples = torch.ones(4, 2), torch.zeros(4)
    check_host(Workload(lambda: nn.Linear(2, 1), nn.functional.mse_loss, samples, sgd(0.1), 1), 1000)


@pytest.mark.parametrize("workload", [gpt(), mnist_mlp(hidden=7), quadratic(dtype="float64")], ids=lambda w: w.name)
def test_each_workload_of_ours_knows_the_size_of_its_weights(workload: Workload) -> None:
    assert workload.weights_bytes == sum(parameter.nbytes for parameter in workload.model().parameters())


def test_the_memory_of_this_machine_is_counted_in_bytes() -> None:
    assert 2**28 < fit.memory_bytes() < 2**50


def experiment(**changes: Any) -> dict[str, Any]:
    return {
        "topology": {"generator": "star", "workers": 4, "device": {"flops": "1 PFLOP/s"}},
        "algorithm": "all_reduce_dp",
        "workload": {"name": "gpt", "size": "70b"},
        "stop": {"steps": 1},
        **changes,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "words"), [("sim", "4 replicas are 2.208 TB"), ("sockets", "a replica are 552.1 GB")]
)
def test_an_experiment_too_large_for_this_machine_is_refused_unless_it_is_only_timed(backend: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"numerics: found real, but weights and gradients of {words}"):
        read_experiment(experiment(backend=backend))
    assert read_experiment(experiment(numerics="none")).steps == 1
