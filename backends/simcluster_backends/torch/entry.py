"""The entry point of the backend `torch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from simcluster.backend import Backend
from simcluster_backends import torch

if TYPE_CHECKING:
    from simcluster.job import ClusterJob
    from simcluster.runs.record import RunRecord


class TorchEntry(Backend):
    """The backend of nodes that talk over torch.distributed."""

    def run_cluster(self, job: ClusterJob) -> RunRecord:
        return torch.run_cluster(job)

    def check_options(self, options: Mapping[str, Any]) -> None:
        from simcluster_backends.common.options import check
        from simcluster_backends.torch.settings import BACKEND, TorchOptions

        check(TorchOptions, options, BACKEND)


BACKEND = TorchEntry()
