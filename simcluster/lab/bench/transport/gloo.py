"""`python -m simcluster.lab.bench.transport.gloo RANK SIZE`: one rank of a gloo group, controlled by lines of JSON.

Each input line is a request, answered by one line:
    {"port": null or N}                 join; rank 0, whose port is null, answers {"port": N} and then joins too
    {"do": NAME, "count": N}            one operation on N floats; {"took_s": S, "cpu_s": S,
                                        "right": whether the sum is right}
The process ends when its input ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from simcluster.process.intra_op import use_one_thread

HOST = "127.0.0.1"
TIMEOUT_S = 60.0
SERVER = 0


def main(rank: int, size: int) -> None:
    """Answer requests until the input ends."""
    use_one_thread()  # The nodes that gloo is compared with do so, too.
    port = json.loads(sys.stdin.readline())["port"]
    wait = timedelta(seconds=TIMEOUT_S)
    make = dist.TCPStore  # type: ignore[attr-defined]  # torch does not export the name
    store = make(HOST, port or 0, size, is_master=port is None, timeout=wait, wait_for_workers=False)
    if port is None:
        _say({"port": store.port})
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=wait)
    if port is not None:
        _say({})
    group = _Group(rank, size)
    for request in map(json.loads, sys.stdin):
        _say(group.do(request["do"], request["count"]))


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


class _Group:
    """The operations of one rank, and the buffers for them."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._mine = torch.empty(0)
        self._others: list[Tensor] = []

    def do(self, name: str, count: int) -> dict[str, Any]:
        """Run operation *name* on *count* floats once all ranks are ready.

        Return its times, and whether the sum is right.
        """
        if len(self._mine) != count:
            self._mine = torch.empty(count)
            self._others = [torch.empty(count) for _ in range(self.size - 1 if self.rank == SERVER else 0)]
        self._mine.fill_(self.rank + 1.0)
        dist.barrier()
        began_s, cpu_began_s = time.perf_counter(), time.process_time()
        if name == "all_reduce":
            dist.all_reduce(self._mine)
        else:
            self._push_pull()
        took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_began_s
        total = self.size * (self.size + 1) / 2
        return {"took_s": took_s, "cpu_s": cpu_s, "right": bool((self._mine == total).all())}

    def _push_pull(self) -> None:
        if self.rank != SERVER:
            dist.send(self._mine, SERVER)
            dist.recv(self._mine, SERVER)
            return
        workers = [rank for rank in range(self.size) if rank != SERVER]
        pushes = [dist.irecv(other, rank) for other, rank in zip(self._others, workers, strict=True)]
        for push, other in zip(pushes, self._others, strict=True):
            assert push is not None  # Only a rank outside the group gets None.
            push.wait()
            self._mine.add_(other)
        for pull in [dist.isend(self._mine, rank) for rank in workers]:
            assert pull is not None
            pull.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
