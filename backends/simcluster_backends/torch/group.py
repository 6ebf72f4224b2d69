"""The gloo group of a run, the rendezvous of its ranks, and the board with their status.

The run creates this group in addition to any other group of the process, such as NCCL's. It sends
host memory over several streams at once, which only gloo supports.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore, PrefixStore, Store, TCPStore  # typed only there

from simcluster.errors import LaunchFailed, Problem, raise_all

__all__ = ["HashStore", "PrefixStore", "RankStatus", "StatusBoard", "Store", "TorchGroup", "WorldPlace", "place_of"]

FOREVER = timedelta(days=365)
"""The timeout of gloo's waits, which is longer than any run.

gloo closes all connections when a wait times out. So the watchdog, and no timeout, decides which
rank is dead.
"""

DATA_TAG = 0
CONTROL_TAG = 1
UNUSED_TAG = 2
GIVES_TAG = 3
TAKES_TAG = 4


@dataclass(frozen=True)
class WorldPlace:
    """The position of this process in the world: its rank, and the world *size*.

    *loopback* means that the run itself has started all processes, on this machine.
    """

    rank: int
    size: int
    loopback: bool = False


def place_of(environ: Mapping[str, str]) -> WorldPlace | None:
    """Return the rank and world size that torchrun, a PyTorchJob or Slurm has set in *environ*, or
    None.

    Slurm's numbers count only if MASTER_ADDR is set, which means that all tasks are one group.
    Raise UsageError for missing or invalid values.
    """
    ranks, sizes = ("RANK", "SLURM_PROCID"), ("WORLD_SIZE", "SLURM_NTASKS")
    if "MASTER_ADDR" not in environ or not any(name in environ for name in ranks):
        return None
    problems: list[Problem] = []
    rank, size = _number(environ, ranks, problems), _number(environ, sizes, problems)
    if "MASTER_PORT" not in environ:
        problems.append(Problem("MASTER_PORT", "none in the environment", "the port at which all processes meet"))
    if not problems and not 0 <= rank < size:
        problems.append(Problem("RANK", str(rank), f"0 to {size - 1}, as WORLD_SIZE is {size}"))
    raise_all(problems)
    return WorldPlace(rank, size)


def _number(environ: Mapping[str, str], names: tuple[str, ...], problems: list[Problem]) -> int:
    name = next((name for name in names if name in environ), names[0])
    text = environ.get(name, "none in the environment")
    if not text.isdecimal():
        problems.append(Problem(name, text, "a whole number"))
        return -1
    return int(text)


def store_of_launcher(place: WorldPlace, timeout_s: float) -> Store:
    """Return the store at MASTER_ADDR, which may be torchrun's own. Raise LaunchFailed if it cannot
    be reached.

    Without torchrun's store, rank 0 hosts one. Each restart by torchrun has its own keys.
    """
    agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = _tcp_store(host, port, place, not agents and place.rank == 0, timeout_s)
    return PrefixStore(f"simcluster/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def store_of_ours(place: WorldPlace, port: int, timeout_s: float) -> TCPStore:
    """Return a store on loopback, in the process of rank 0; port 0 takes any free port."""
    return _tcp_store("127.0.0.1", port, place, place.rank == 0, timeout_s)


def _tcp_store(host: str, port: int, place: WorldPlace, here: bool, timeout_s: float) -> TCPStore:
    try:
        timeout = timedelta(seconds=timeout_s)
        return TCPStore(host, port, place.size, here, timeout, wait_for_workers=False, multi_tenant=here)
    except (RuntimeError, ValueError) as error:
        reason = f"{host}:{port}: {first_line(error)}"
        raise LaunchFailed(f"rank {place.rank} cannot meet the others", [reason]) from None


class TorchGroup:
    """A group for messages between two ranks of a run.

    Raise LaunchFailed if the ranks do not come together.
    """

    def __init__(self, store: Store, place: WorldPlace, timeout_s: float) -> None:
        self._rank = place.rank
        self._size = place.size
        timeout = timedelta(seconds=timeout_s)
        try:
            if place.loopback:
                options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
                options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
                options._timeout, options._threads = timeout, 1
                self._gloo: Any = dist.ProcessGroupGloo(store, place.rank, place.size, options)
            else:  # this constructor respects GLOO_SOCKET_IFNAME
                self._gloo = dist.ProcessGroupGloo(store, place.rank, place.size, timeout)
        except RuntimeError as error:
            raise LaunchFailed(f"rank {place.rank} cannot form a group with the others", [first_line(error)]) from None

    def send(self, to: int, tensor: Tensor, tag: int = DATA_TAG) -> None:
        """Send *tensor*, and block until it has left: gloo waits for room at the receiver.

        Raise RuntimeError if *to* is gone.
        """
        self._gloo.send([tensor], to, tag).wait(FOREVER)

    def recv(self, source: int, tensor: Tensor, tag: int = DATA_TAG) -> None:
        """Block until *tensor* is filled by *source*. Raise RuntimeError if *source* is gone."""
        self._gloo.recv([tensor], source, tag).wait(FOREVER)

    def cut(self) -> None:
        """Close all connections of this process: pending waits on them, here and at peers, fail."""
        if self._size > 1:
            with suppress(RuntimeError):  # gloo closes them only when a wait times out: force that
                other = (self._rank + 1) % self._size
                self._gloo.recv([torch.empty(1)], other, UNUSED_TAG).wait(timedelta(milliseconds=1))


def first_line(error: BaseException) -> str:
    """Return the first line of *error*, without C++ source locations and torch's advice."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    if text.startswith("["):  # [file:line] what
        text = text.partition("] ")[2] or text
    return text.partition(". This is typically")[0].strip()


class RankStatus(msgspec.Struct, array_like=True):
    """A rank's progress. *beat* rises while its process lives.

    *stop* is set by rank 0 to the reason for which all ranks must stop. *places* has the locations
    in the code at which the rank's tasks wait, *unread* the messages that no task has received. See
    NodeProgress for the other fields.
    """

    beat: int = 0
    moved: int = 0
    done: int = 0
    computing: int = 0
    waits: list[str] = []
    steps: int = 0
    ended: bool = False
    stop: str = ""
    places: list[str] = []
    unread: list[str] = []


_decoder = msgspec.json.Decoder(RankStatus)


@dataclass
class StatusBoard:
    """The status and the news of all ranks of a run, in *store*. All methods block.

    *fallen* returns descriptions of processes that have already ended.
    """

    store: Store
    place: WorldPlace
    names: Sequence[str]
    fallen: Callable[[], list[str]] = lambda: []

    def agree(self, stage: str, said: str, timeout_s: float) -> list[str]:
        """Post *said* for *stage*, wait for all ranks, and return what each of them has posted.

        Raise LaunchFailed with the missing ranks after *timeout_s*, or if a process has ended.
        """
        self.store.set(f"{stage}/{self.place.rank}", said)
        end_s = time.monotonic() + timeout_s
        missing = list(range(self.place.size))
        while missing := [rank for rank in missing if not self.store.check([f"{stage}/{rank}"])]:
            if fallen := self.fallen():
                raise LaunchFailed("a process ended before the run began", fallen)
            if time.monotonic() > end_s:
                me, words = self.names[self.place.rank], [f"rank {r} ({self.names[r]}) did not" for r in missing]
                raise LaunchFailed(f"{me} waited {timeout_s:g} s for all to be {stage}", words)
            time.sleep(0.02)
        return [self.store.get(f"{stage}/{rank}").decode() for rank in range(self.place.size)]

    def post(self, status: RankStatus) -> None:
        self.store.set(f"status/{self.place.rank}", msgspec.json.encode(status).decode())

    def read(self) -> list[RankStatus]:
        """Return the last status of every rank. Each rank must have posted one."""
        values = self.store.multi_get([f"status/{rank}" for rank in range(self.place.size)])
        return [_decoder.decode(value) for value in values]

    def tell(self, news: str) -> None:
        self.store.set(f"news/{self.place.rank}", news)

    def told(self) -> list[str]:
        """Return the last news of every rank. Each rank must have posted some with `tell`."""
        return [value.decode() for value in self.store.multi_get([f"news/{r}" for r in range(self.place.size)])]

    def limit(self, timeout_s: float) -> None:
        """Limit each later call to *timeout_s*, after which it raises RuntimeError."""
        self.store.set_timeout(timedelta(seconds=timeout_s))
