"""Workloads, each with a model, a loss, data with its partition, and an optimizer.

See workload.py for how to write your own.
"""

from collections.abc import Callable, Mapping

from simcluster.workloads.data.partition import dirichlet, iid, redeal
from simcluster.workloads.data.samples import Batch, Samples
from simcluster.workloads.models.gpt import gpt
from simcluster.workloads.models.mnist import mnist_cnn, mnist_mlp, mnist_moe
from simcluster.workloads.models.quadratic import quadratic
from simcluster.workloads.optimizers import adamw, sgd
from simcluster.workloads.progress.ledger import BatchGroup
from simcluster.workloads.reference import joined_batches, train_alone
from simcluster.workloads.replica import Replica
from simcluster.workloads.weights import weights_sha256
from simcluster.workloads.workload import Workload

WORKLOADS: Mapping[str, Callable[..., Workload]] = {
    "gpt": gpt,
    "mnist_cnn": mnist_cnn,
    "mnist_mlp": mnist_mlp,
    "mnist_moe": mnist_moe,
    "quadratic": quadratic,
}
"""Name in `workload: {name: ...}` -> a function that returns the workload. Its keyword arguments
are the workload's settings.
"""

__all__ = [
    "WORKLOADS",
    "Batch",
    "BatchGroup",
    "Replica",
    "Samples",
    "Workload",
    "adamw",
    "dirichlet",
    "gpt",
    "iid",
    "joined_batches",
    "mnist_cnn",
    "mnist_mlp",
    "mnist_moe",
    "quadratic",
    "redeal",
    "sgd",
    "train_alone",
    "weights_sha256",
]
