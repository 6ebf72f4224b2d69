"""One file per algorithm, each a page that reads like its paper. `ALGORITHMS` names them for commands and files."""

from collections.abc import Callable
from typing import Any

from simcluster.algorithms.ad_psgd import ad_psgd
from simcluster.algorithms.all_reduce_dp import all_reduce_dp
from simcluster.algorithms.async_diloco import async_diloco
from simcluster.algorithms.choco_sgd import choco_sgd
from simcluster.algorithms.d_psgd import d_psgd
from simcluster.algorithms.demo import demo
from simcluster.algorithms.diloco import diloco
from simcluster.algorithms.easgd import easgd
from simcluster.algorithms.edp import edp
from simcluster.algorithms.fedbuff import fedbuff
from simcluster.algorithms.gradient_tracking import gradient_tracking
from simcluster.algorithms.k_async import k_async
from simcluster.algorithms.k_sync import k_sync
from simcluster.algorithms.local_sgd import local_sgd
from simcluster.algorithms.one_bit_adam import one_bit_adam
from simcluster.algorithms.pipeline import pipeline
from simcluster.algorithms.sgp import sgp
from simcluster.algorithms.softsync import softsync
from simcluster.algorithms.sparta import sparta
from simcluster.algorithms.ssp import ssp
from simcluster.algorithms.streaming_diloco import streaming_diloco
from simcluster.algorithms.sync_ps import sync_ps
from simcluster.algorithms.tensor_parallel import tensor_parallel
from simcluster.algorithms.zero import zero

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
