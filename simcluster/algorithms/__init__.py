"""The algorithms, one file each. Each file reads like the paper it implements.

The imports below list them all.

A user's own algorithm can use the same tools: `steps` and `rounds` are its loop, `resumable` holds
the variables that a checkpoint keeps, and `Lag` holds results that are applied late.
"""

from collections.abc import Callable
from typing import Any

from simcluster.algorithms.data_parallel.all_reduce_dp import all_reduce_dp as all_reduce_dp
from simcluster.algorithms.data_parallel.one_bit_adam import one_bit_adam as one_bit_adam
from simcluster.algorithms.data_parallel.zero import zero as zero
from simcluster.algorithms.facts import Facts, facts_of
from simcluster.algorithms.gossip.ad_psgd import ad_psgd as ad_psgd
from simcluster.algorithms.gossip.choco_sgd import choco_sgd as choco_sgd
from simcluster.algorithms.gossip.d_psgd import d_psgd as d_psgd
from simcluster.algorithms.gossip.gradient_tracking import gradient_tracking as gradient_tracking
from simcluster.algorithms.gossip.sgp import sgp as sgp
from simcluster.algorithms.local_steps.async_diloco import async_diloco as async_diloco
from simcluster.algorithms.local_steps.demo import demo as demo
from simcluster.algorithms.local_steps.diloco import diloco as diloco
from simcluster.algorithms.local_steps.easgd import easgd as easgd
from simcluster.algorithms.local_steps.fedbuff import fedbuff as fedbuff
from simcluster.algorithms.local_steps.local_sgd import local_sgd as local_sgd
from simcluster.algorithms.local_steps.sparta import sparta as sparta
from simcluster.algorithms.local_steps.streaming_diloco import streaming_diloco as streaming_diloco
from simcluster.algorithms.model_parallel.expert_parallel import expert_parallel as expert_parallel
from simcluster.algorithms.model_parallel.pipeline import pipeline as pipeline
from simcluster.algorithms.model_parallel.tensor_parallel import tensor_parallel as tensor_parallel
from simcluster.algorithms.parameter_server.edp import edp as edp
from simcluster.algorithms.parameter_server.k_async import k_async as k_async
from simcluster.algorithms.parameter_server.k_sync import k_sync as k_sync
from simcluster.algorithms.parameter_server.softsync import softsync as softsync
from simcluster.algorithms.parameter_server.ssp import ssp as ssp
from simcluster.algorithms.parameter_server.sync_ps import sync_ps as sync_ps
from simcluster.algorithms.steps import Lag as Lag
from simcluster.algorithms.steps import Late as Late
from simcluster.algorithms.steps import resumable as resumable
from simcluster.algorithms.steps import rounds as rounds
from simcluster.algorithms.steps import steps as steps

ALGORITHMS: dict[str, Callable[..., Any]] = {
    name: found for name, found in sorted(globals().items()) if facts_of(found) != Facts()
}
"""Name of an algorithm in an experiment, as in `algorithm: sync_ps` -> its function.

The function's keyword arguments are the algorithm's settings.
"""
