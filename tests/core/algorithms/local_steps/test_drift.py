"""Corrections of client drift: FedProx and SCAFFOLD compute what their papers say, and SCAFFOLD reaches the optimum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simcluster
from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import facts_of
from simcluster.errors import UsageError
from simcluster.workloads import quadratic
from tests.core.algorithms.trained import EVEN, SEED, WORKLOAD, train

ETA = 0.1
"""The learning rate of WORKLOAD."""


def as_published(steps: int, interval: int, mu: float, scaffold: bool) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The weights of three ranks after FedProx, or after SCAFFOLD with option II and a server's step size of 1."""
    replicas = [WORKLOAD.replica(rank, 3, SEED, steps) for rank in range(3)]
    batches = [[(batch.inputs.numpy(), batch.targets.numpy()) for batch in each.batches()] for each in replicas]
    x = replicas[0].parameters[0].numpy().T.copy()
    c, c_i = np.zeros_like(x), [np.zeros_like(x)] * 3
    for first in range(0, steps, interval):
        moves, changes = [], []
        for rank in range(3):
            y = x.copy()
            local = batches[rank][first : first + interval]
            for inputs, targets in local:
                gradient = inputs.T @ (inputs @ y - targets) / len(inputs)
                y = y - ETA * (gradient + mu * (y - x) - c_i[rank] + c)
            if scaffold:
                new = c_i[rank] - c + (x - y) / (len(local) * ETA)
                changes.append(new - c_i[rank])
                c_i[rank] = new
            moves.append(y - x)
        x = x + sum(moves) / 3
        c = c + sum(changes) / 3
    return x.ravel()


@pytest.mark.parametrize("scaffold", [False, True], ids=["FedProx", "SCAFFOLD"])
def test_the_weights_are_those_of_the_papers_loop(scaffold: bool) -> None:
    settings: dict[str, Any] = {"control_variates": True} if scaffold else {"proximal": 2.0}
    run = train("local_sgd", 3, interval=5, **settings)  # rounds of 5, 5 and 2 steps
    expected = as_published(12, 5, 0.0 if scaffold else 2.0, scaffold)
    for vector in run.vectors:
        np.testing.assert_allclose(vector.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_with_different_data_scaffold_reaches_the_joint_optimum_and_plain_rounds_do_not() -> None:
    # Each rank's batch is its whole shard, so its gradient is A_i w - b_i. The joint optimum is (sum A_i)^-1 sum b_i.
    # H plain steps go the share S_i = I - (I - eta A_i)^H of the way to A_i^-1 b_i, so their mean stops at
    # (sum S_i)^-1 sum S_i A_i^-1 b_i.
    workload = quadratic(features=2, samples=24, noise=1.0, batch_size=8, learning_rate=0.3, dtype="float64")
    batches = [next(workload.replica(rank, 3, SEED, 1).batches()) for rank in range(3)]
    X, y = np.stack([one.inputs.numpy() for one in batches]), np.stack([one.targets.numpy() for one in batches])
    A, b = X.transpose(0, 2, 1) @ X / 8, X.transpose(0, 2, 1) @ y / 8
    S = np.eye(2) - np.linalg.matrix_power(np.eye(2) - 0.3 * A, 5)
    joint = np.linalg.solve(A.sum(0), b.sum(0))
    drifted = np.linalg.solve(S.sum(0), (S @ np.linalg.solve(A, b)).sum(0))
    assert np.linalg.norm(joint - drifted) > 0.04
    for corrected, expected in ((False, drifted), (True, joint)):
        run = train("local_sgd", 3, workload=workload, steps=100, interval=5, control_variates=corrected)
        np.testing.assert_allclose(run.vectors[0].numpy(), expected.ravel(), rtol=0, atol=1e-5)


def test_after_a_loss_the_survivors_control_variates_cancel_again(tmp_path: Path) -> None:
    # Without noise all ranks have one optimum, where all gradients are zero. If the c of the larger group stayed, the
    # survivors would stop elsewhere.
    found = simcluster.run(
        {
            "topology": {"generator": "star", "workers": 3, "device": "raspberry-pi-4", "bandwidth": "1 Mbps"},
            "algorithm": {"name": "local_sgd", "interval": 3, "control_variates": True},
            "workload": {"name": "quadratic", "features": 3, "noise": 0.0, "dtype": "float64"},
            "stop": {"steps": 120},
            "faults": [{"kind": "crash", "node": "n2", "at": "9 ms"}],
        },
        out=tmp_path, options={"dead_s": 0.02}, report=False,
    )  # fmt: skip
    assert found.summary["regroups"][0]["members"] == ["n0", "n1"]
    assert found.summary["regroups"][0]["step"] > 0
    assert found.summary["loss"] < 1e-9


def test_corrections_take_time_and_only_control_variates_send_more() -> None:
    plain, prox, scaffold = (
        train("local_sgd", EVEN, interval=3, **settings)
        for settings in ({}, {"proximal": 1.0}, {"control_variates": True})
    )
    work = [sum(span.kind == "compute" for span in run.records[0].spans) for run in (plain, prox, scaffold)]
    # 12 steps in 4 rounds. Without corrections: the gradient and the step; in each round the change, the new mean and
    # its loading.
    assert work[0] == 12 * 2 + 4 * 3
    # FedProx: mu (y - x) and its sum with the gradient. SCAFFOLD: the mean gradient, c - c_i and its sum with the
    # gradient; in each round the weight of c_i.
    assert [each - work[0] for each in work] == [0, 12 * 2, 12 * 3 + 4]
    assert sum(prox.sizes("average")) == sum(plain.sizes("average"))
    # In each round 3 ranks send a third of 6 numbers more, 4 times.
    assert sum(scaffold.sizes("average")) - sum(plain.sizes("average")) == 4 * 3 * 4 * 2 * 8


def test_control_variates_are_three_more_copies_and_double_what_is_sent() -> None:
    copies = facts_of(ALGORITHMS["local_sgd"]).copies
    assert copies is not None
    plain = {"compression": "none", "schedule": "naive", "control_variates": False}
    # Three ranks: the old mean, the change, the sum, and 4 vectors in messages.
    assert copies(0, 3, plain) == 3 + 4
    # c, c_i before and after; and what is sent, its sum and its messages twice.
    assert copies(0, 3, plain | {"control_variates": True}) == 4 + 2 * (2 + 4)


def test_control_variates_are_not_compressed(tmp_path: Path) -> None:
    algorithm = {"name": "local_sgd", "control_variates": True, "compression": "int8"}
    with pytest.raises(UsageError, match=r"compression: found .*'int8'.* with control_variates: true, expected none"):
        simcluster.run(
            {"topology": "star-8-gigabit", "algorithm": algorithm, "workload": "quadratic"}, out=tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()
