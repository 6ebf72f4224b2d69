"""One file per algorithm, each a page that reads like its paper. `ALGORITHMS` names them for commands and files."""

from collections.abc import Callable
from typing import Any

from simcluster.algorithms.data_parallel.all_reduce_dp import all_reduce_dp
from simcluster.algorithms.data_parallel.one_bit_adam import one_bit_adam
from simcluster.algorithms.data_parallel.zero import zero
from simcluster.algorithms.gossip.ad_psgd import ad_psgd
from simcluster.algorithms.gossip.choco_sgd import choco_sgd
from simcluster.algorithms.gossip.d_psgd import d_psgd
from simcluster.algorithms.gossip.gradient_tracking import gradient_tracking
from simcluster.algorithms.gossip.sgp import sgp
from simcluster.algorithms.local_steps.async_diloco import async_diloco
from simcluster.algorithms.local_steps.demo import demo
from simcluster.algorithms.local_steps.diloco import diloco
from simcluster.algorithms.local_steps.easgd import easgd
from simcluster.algorithms.local_steps.fedbuff import fedbuff
from simcluster.algorithms.local_steps.local_sgd import local_sgd
from simcluster.algorithms.local_steps.sparta import sparta
from simcluster.algorithms.local_steps.streaming_diloco import streaming_diloco
from simcluster.algorithms.model_parallel.pipeline import pipeline
from simcluster.algorithms.model_parallel.tensor_parallel import tensor_parallel
from simcluster.algorithms.parameter_server.edp import edp
from simcluster.algorithms.parameter_server.k_async import k_async
from simcluster.algorithms.parameter_server.k_sync import k_sync
from simcluster.algorithms.parameter_server.softsync import softsync
from simcluster.algorithms.parameter_server.ssp import ssp
from simcluster.algorithms.parameter_server.sync_ps import sync_ps

ALGORITHMS: dict[str, Callable[..., Any]] = {
    "ad_psgd": ad_psgd,
    "all_reduce_dp": all_reduce_dp,
    "async_diloco": async_diloco,
    "choco_sgd": choco_sgd,
    "d_psgd": d_psgd,
    "demo": demo,
    "diloco": diloco,
    "easgd": easgd,
    "edp": edp,
    "fedbuff": fedbuff,
    "gradient_tracking": gradient_tracking,
    "k_async": k_async,
    "k_sync": k_sync,
    "local_sgd": local_sgd,
    "one_bit_adam": one_bit_adam,
    "pipeline": pipeline,
    "sgp": sgp,
    "softsync": softsync,
    "sparta": sparta,
    "ssp": ssp,
    "streaming_diloco": streaming_diloco,
    "sync_ps": sync_ps,
    "tensor_parallel": tensor_parallel,
    "zero": zero,
}
"""By name, as in `algorithm: sync_ps`; the settings of each are its keyword arguments."""

__all__ = [
    "ALGORITHMS",
    "ad_psgd",
    "all_reduce_dp",
    "async_diloco",
    "choco_sgd",
    "d_psgd",
    "demo",
    "diloco",
    "easgd",
    "edp",
    "fedbuff",
    "gradient_tracking",
    "k_async",
    "k_sync",
    "local_sgd",
    "one_bit_adam",
    "pipeline",
    "sgp",
    "softsync",
    "sparta",
    "ssp",
    "streaming_diloco",
    "sync_ps",
    "tensor_parallel",
    "zero",
]
