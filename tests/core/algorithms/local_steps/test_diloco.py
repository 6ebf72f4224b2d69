"""DiLoCo: against torch's own Nesterov in the naive loop, and local SGD, which is a special case."""

from __future__ import annotations

from dataclasses import replace

import torch

from simcluster.lab.verify.claims.diloco import diloco as reference
from simcluster.workloads import adamw
from tests.core.algorithms.trained import (
    SEED,
    WORKLOAD,
    close,
    train,
)

DEFAULTS = {"interval": 20, "outer_learning_rate": 0.7, "outer_momentum": 0.9}


def test_adam_inside_keeps_its_moments_where_they_are() -> None:
    workload = replace(WORKLOAD, optimizer=adamw(0.05))
    run = train("diloco", 3, workload=workload, interval=5)
    close(run.weights, reference(workload, 3, SEED, 12, {**DEFAULTS, "interval": 5}))
    moments = [replica.state()["optimizer.weight.exp_avg"] for replica in run.replicas]
    assert not torch.equal(moments[0], moments[1])
    # 3 rounds of a ring over 3: nothing but the outer gradient travels
    assert run.messages_sent == 3 * 3 * 4
