"""Parts of torch.distributed that have no counterpart on a cluster: refused by name, where the script calls them."""

from __future__ import annotations

from functools import partial
from typing import Any, NoReturn

import torch.distributed as dist
from torch.distributed import autograd, rpc

from simcluster.scripts.rank.node_link import script_line


def refuse(what: str, expected: str, *_: Any, **__: Any) -> NoReturn:
    """Raise NotImplementedError for *what*, with the script's line."""
    raise NotImplementedError(f"{script_line()}: {what} is not there in a cluster of simcluster; {expected}")


def install_refusals() -> None:
    """Let every function that needs another way of communication refuse."""
    collectives = "expected collectives, or send and recv"
    for module, names in (
        (rpc, ("init_rpc", "rpc_sync", "rpc_async", "remote", "get_worker_info")),
        (autograd, ("context", "backward", "get_gradients")),
    ):
        for name in names:
            setattr(module, name, partial(refuse, f"{module.__name__}.{name}", collectives))
    for name in ("TCPStore", "FileStore"):
        stores = "expected init_process_group without a store, and object collectives"
        setattr(dist, name, partial(refuse, f"torch.distributed.{name}", stores))
