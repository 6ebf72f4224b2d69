"""A workload for nodes in processes of their own: reading it gives their machine the stand-in accelerator."""

from __future__ import annotations

from simcluster import Workload
from simcluster.compute import place
from simcluster.workloads import mnist_mlp
from tests.support.stand_in import install
from tests.support.strict_pair import register

_device = install()
register()
place.accelerators = lambda: [_device]


def make_workload() -> Workload:
    return mnist_mlp(hidden=8, batch_size=4)
