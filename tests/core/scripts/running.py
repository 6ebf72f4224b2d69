"""Runs of scripts for tests: on a cluster, and as plain torch.distributed programs."""

from __future__ import annotations

import multiprocessing
import os
import re
import runpy
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed import TCPStore

import simcluster
from simcluster.results import Run
from simcluster.scripts import rank_process
from tests.support.root import ROOT

rank_process.PRELOADED += ["torch.distributed.checkpoint", "torch.distributed.pipelining", "torch.distributed.optim"]
"""What the ranks of several tests need, too: loaded once."""

SHIPPED = ROOT / "experiments" / "scripts"


def pair(*, bandwidth: str = "1 Gbps", latency: str = "0 s", nodes: str = "ab") -> dict[str, Any]:
    """Return a cluster of nodes of 1 GFLOP/s, every two of them joined."""
    return {
        "name": "mesh",
        "nodes": {name: {"flops": "1 GFLOP/s"} for name in nodes},
        "links": [
            {"between": [one, other], "bandwidth": bandwidth, "latency": latency}
            for number, one in enumerate(nodes)
            for other in nodes[number + 1 :]
        ],
    }


def run_script(
    script: Path,
    folder: Path,
    topology: dict[str, Any],
    *args: str,
    backend: str = "sim",
    options: dict[str, Any] | None = None,
    block: dict[str, Any] | None = None,
    on_output: Callable[[str, str], None] | None = None,
    **keys: Any,
) -> Run:
    """Run *script* with *args* on *topology* into *folder*; *block* has more keys of `script`, *keys* the others."""
    rank_process.get_ready(is_simulated=True)  # whatever the backend: the ranks of all tests are forked from there
    given = {"file": str(script), "args": list(args), **(block or {})}
    experiment = {"script": given, "topology": topology, **keys}
    return simcluster.run(
        experiment, backend=backend, out=folder, report=False, options=options, on_output=on_output
    )  # fmt: skip


def printed(folder: Path, node: str = "a") -> list[str]:
    """Return what the script printed on *node*, without the lines of the library's log."""
    lines = (folder / "logs" / f"{node}.log").read_text().splitlines()
    return [line for line in lines if " INFO " not in line]


LOSS = re.compile(r"step (\d+) loss ([-\d.e]+)")


def losses(lines: Sequence[str]) -> list[float]:
    return [float(found[2]) for line in lines if (found := LOSS.match(line))]


def left_over(folder: Path = Path("/dev/shm")) -> list[str]:
    """Return what the runs of this process have left: processes of ranks, and their shared memory."""
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    if server is None:
        return []
    ranks = [f"process {child.pid}" for child in psutil.Process(server).children(recursive=True)]
    return ranks + [str(path) for path in folder.glob(f"simcluster-{os.getpid()}-*")]


def under_gloo(script: Path, folder: Path, size: int, *args: str) -> list[list[str]]:
    """Run *script* as torchrun does, with gloo and *size* processes on this machine; return what each rank prints.

    The processes are forks of one that has torch, and has nothing of simcluster installed in it. If *size* is 1, the
    script is run without torchrun, and may start its own ranks.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=300))
    launched = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    logs = [folder / f"rank{rank}" for rank in range(size)]
    ranks = []
    for rank, log in enumerate(logs):
        places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        variables = {**launched, **{name: str(place) for name, place in places.items()}} if size > 1 else {}
        with rank_process._without_main():
            context = rank_process._context(is_simulated=True)
            ranks.append(context.Process(target=_be_rank, args=(script, args, variables, log)))
            ranks[-1].start()
    for process in ranks:
        process.join()
    printed = [log.read_text().splitlines() for log in logs]
    assert [process.exitcode for process in ranks] == [0] * size, "\n".join(map("\n".join, printed))
    return printed


def _be_rank(script: Path, args: Sequence[str], variables: dict[str, str], log: Path) -> None:
    os.environ |= variables
    with open(log, "wb") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    torch.set_num_threads(1)
    multiprocessing.set_start_method(None, force=True)
    # Ranks that the script starts are forks, too: fresh interpreters would load torch again.
    torch.multiprocessing.spawn = partial(torch.multiprocessing.start_processes, start_method="fork")
    _keep_groups()
    sys.argv = [str(script), *args]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")


def _keep_groups() -> None:
    """Let no group be deleted before the process ends.

    DistributedDataParallel may hold the last reference. torch 2.13 then waits for a thread of gloo's, with Python's
    lock held, and that thread may wait for the lock to delete a tensor.
    """
    destroy, kept = dist.destroy_process_group, []

    def destroy_process_group(group: Any = None) -> None:
        kept.extend(dist.distributed_c10d._world.pg_map)
        destroy(group)

    dist.destroy_process_group = destroy_process_group
