"""What the library asks of the backend `torch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from simcluster.backend import Backend
from simcluster_backends import torch

if TYPE_CHECKING:
    from simcluster.job import ClusterJob
    from simcluster.runs.record import RunRecord


class TorchEntry(Backend):
    """The transport over torch.distributed."""

    def run_cluster(self, job: ClusterJob) -> RunRecord:
        return torch.run_cluster(job)

    def check_options(self, options: Mapping[str, Any]) -> None:
        torch.check_options(options)


BACKEND = TorchEntry()
