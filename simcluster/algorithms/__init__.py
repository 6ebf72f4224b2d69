"""One file per algorithm, each a page that reads like its paper. `ALGORITHMS` names them for commands and files."""

from collections.abc import Callable
from typing import Any

from simcluster.algorithms.all_reduce_dp import all_reduce_dp
from simcluster.algorithms.edp import edp
from simcluster.algorithms.sync_ps import sync_ps

ALGORITHMS: dict[str, Callable[..., Any]] = {
    "all_reduce_dp": all_reduce_dp,
    "edp": edp,
    "sync_ps": sync_ps,
}
"""By name, as in `algorithm: sync_ps`; the settings of each are its keyword arguments."""

__all__ = ["ALGORITHMS", "all_reduce_dp", "edp", "sync_ps"]
