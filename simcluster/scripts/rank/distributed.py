"""torch.distributed in a rank's process: the cluster provides the process groups, whatever backend
a script names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch.distributed as dist
from torch import futures
from torch._C._distributed_c10d import HashStore
from torch.distributed import autograd, distributed_c10d, rpc

from simcluster.scripts.rank.call_work import joined_future
from simcluster.scripts.rank.ddp_hooks import install_hooks
from simcluster.scripts.rank.gloo_group import GlooGroups
from simcluster.scripts.rank.node_link import NodeLink, refuse, script_line
from simcluster.scripts.rank.process_group import NAME, ScriptGroup
from simcluster.scripts.rank.replacements import around
from simcluster.topology.read.rank_places import RankPlace

BACKENDS = ("gloo", "nccl", "xccl", "ucc", "undefined")
"""The backends that a script may name. In torch, "undefined" means no particular backend."""


def install_groups(link: NodeLink, rank: int, size: int, gloo: GlooGroups | None = None) -> None:
    """Make `init_process_group` and `new_group` return groups of the cluster, or of *gloo* if it is
    given.

    The process is *rank* of *size*. Functions that these two call are replaced, instead of the two
    themselves, since parts of torch have already imported the two by name.
    """
    # The backend that the default group asked for, then the backend of the group being made.
    asked = ["undefined"]

    def create(options: Any, _: object) -> ScriptGroup:
        ranks = options.global_ranks_in_group or range(size)
        if gloo is not None:
            return gloo.make(options, ranks, asked[-1])
        return ScriptGroup(link, options.group_rank, ranks, asked[-1])

    def rendezvous(_: str, rank_given: int = -1, size_given: int = -1, **__: Any) -> Iterator[tuple[Any, int, int]]:
        """Yield a store for the ranks, the rank and the world size, once.

        With gloo all ranks share the store; otherwise it is empty, since the cluster knows its
        ranks.
        """
        store = HashStore() if gloo is None else gloo.store()
        own_rank, own_size = (int(os.environ.get(*named)) for named in (("RANK", rank), ("WORLD_SIZE", size)))
        yield store, own_rank if rank_given == -1 else rank_given, own_size if size_given == -1 else size_given

    @around(distributed_c10d, "_new_process_group_helper")
    def new_process_group(
        make: Any, group_size: int, group_rank: int, ranks: Any, backend: str, store: Any, *args: Any, **how: Any
    ) -> Any:
        function = "new_group" if ranks else "init_process_group"
        own = asked[0] if str(backend) == NAME else _checked_backend(function, backend)
        if not ranks:
            asked[:] = [own]
            for what, given, true in (("world_size", group_size, size), ("rank", group_rank, rank)):
                if given != true:
                    raise ValueError(f"init_process_group({what}={given}): expected {true}, as the cluster has it")
        asked.append(own)
        try:
            return make(group_size, group_rank, ranks, NAME, store, *args, **{**how, "device_id": None})
        finally:
            asked.pop()

    @around(dist, "get_backend")
    def get_backend(real: Any, group: Any = None) -> Any:
        found = group or distributed_c10d._get_default_group()
        return getattr(found, "asked_backend", None) or real(group)

    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])
    distributed_c10d.rendezvous = rendezvous
    _install_refusals()
    if gloo is not None:
        return
    dist.split_group, dist.monitored_barrier = split_group, monitored_barrier
    install_hooks()
    # Torch's own versions wait in C++, which would never complete a call.
    futures.collect_all, futures.wait_all = joined_future, lambda given: [one.wait() for one in given]


def _install_refusals() -> None:
    """Make functions that communicate in other ways than through groups raise NotImplementedError."""
    instead = "expected collectives, or send and recv"
    for name in ("init_rpc", "rpc_sync", "rpc_async", "remote", "get_worker_info"):
        setattr(rpc, name, partial(refuse, f"torch.distributed.rpc.{name}", instead))
    for name in ("context", "backward", "get_gradients"):
        setattr(autograd, name, partial(refuse, f"torch.distributed.autograd.{name}", instead))
    for name in ("TCPStore", "FileStore"):
        stores = "expected init_process_group without a store, and object collectives"
        setattr(dist, name, partial(refuse, f"torch.distributed.{name}", stores))


def split_group(parent_pg: Any = None, split_ranks: Any = None, *_: Any, **__: Any) -> Any:
    """Make a group for each list in *split_ranks* that contains this rank; return the last one, if
    any.

    Replace torch.distributed.split_group. The lists have ranks of the parent group.
    """
    if not split_ranks:
        raise ValueError(f"split_group(split_ranks={split_ranks}): expected lists of ranks")
    parent = dist.get_process_group_ranks(parent_pg or dist.group.WORLD)
    mine = None
    for ranks in split_ranks:
        members = [parent[rank] for rank in ranks]
        if dist.get_rank() in members:
            mine = dist.new_group(members, use_local_synchronization=True)
    return mine


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """Replace torch.distributed.monitored_barrier, which torch supports only for gloo."""
    world: Any = dist.group.WORLD
    if group is not dist.GroupMember.NON_GROUP_MEMBER:
        (group or world).monitored_barrier(timeout, wait_all_ranks)


def _checked_backend(function: str, backend: str | None) -> str:
    """Return *backend* in the form in which `get_backend` reports it.

    Raise ValueError unless every backend that it names is in BACKENDS.
    """
    text = "undefined" if backend is None else str(backend).lower()
    for part in text.split(","):
        if part.rpartition(":")[2] not in BACKENDS:
            known = ", ".join(BACKENDS[:-1])
            raise ValueError(f"{script_line()}: {function}(backend={backend!r}): expected one of {known}")
    return text


def torchrun_variables(rank: int, size: int, place: RankPlace, restarts: tuple[int, int]) -> dict[str, str]:
    """Return the environment variables that torchrun would set for a rank.

    *restarts* is (number of restarts so far, limit).
    """
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_size),
        "GROUP_RANK": str(place.machine),
        "GROUP_WORLD_SIZE": str(place.machines),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(size),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RESTART_COUNT": str(restarts[0]),
        "TORCHELASTIC_MAX_RESTARTS": str(restarts[1]),
        "TORCHELASTIC_RUN_ID": "simcluster",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
