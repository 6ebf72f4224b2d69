"""The description of a run that a backend gets: its nodes in rank order and where they start, the
program, and the faults.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simcluster.checkpoints.gather import CheckpointKeeping
    from simcluster.fault_plans.kinds import Fault
    from simcluster.topology import Topology
    from simcluster.watching.telling import Follower, Watcher
    from simcluster.worlds import PlannedWorld

NODE_PROGRAM = "simcluster.experiment.node:run_node"


@dataclass(frozen=True)
class Remote:
    """The machine of a node that is started by ssh.

    *ssh* is [user@]host, and *command* starts simcluster on that machine. Peers connect to
    *address*, which defaults to the address at which the launcher reaches the machine, and to
    *port*; with port 0 the machine chooses a free one.
    """

    ssh: str
    command: tuple[str, ...] = ("python3", "-m", "simcluster")
    address: str | None = None
    port: int = 0


@dataclass(frozen=True)
class ClusterJob:
    """One run. Index i of *names*, *addresses* and *remotes* belongs to rank i.

    A node with an address is started by hand, and the backend waits for it. A node with a Remote is
    started on that machine, and gets *files*, the user's code, under their paths on this machine.
    The backend starts all other nodes here.

    - *program*: "module:function" of `async def program(node, recorder, config_json) ->
      NodeRecord`, which every node awaits with *config_json* verbatim. Its module may have two more
      functions. The process of each node first calls `prepare(config_json)`, and the clock starts
      when all have finished, since reading data is not part of a run. It may return hashes of the
      data that all nodes must have in common: see `unlike`. `preloads(config_json)` returns the
      names of other modules that every node imports. If one of these modules has a function
      `before_threads()`, a process that is started for a node calls it before anything else.
    - *faults*: the planned faults, with times that count from the start of the clock.
    - *worlds*: SimPy processes that act on the cluster, for the simulator alone.
    - *time_s*: the time by which every node ends its algorithm by itself, or None. In real time, a
      backend drops a node that is still running some time after that.
    - *options*: the backend's own settings; it reports unknown ones.
    - *on_progress*: called with (rank, its last step). *on_output*: called with (name, line) for
      each line that a remote node prints. *watcher* receives many more events of the run, and
      *follower* receives every row that a node records.
    - *again*: called for a restart. It returns (configuration that resumes from a checkpoint,
      description of the checkpoint), or None if there is no checkpoint. *keeping* stores
      checkpoints, and has the state to start from.
    - *rests*: every rank except 0 does nothing until rank 0 first sends to it, and ends when rank 0
      ends: see `Facts.rests`.
    - *about*: name, algorithm, topology and steps, for displays of the run.
    """

    names: list[str]
    config_json: str
    seed: int = 0
    addresses: list[tuple[str, int] | None] = field(default_factory=list)
    program: str = NODE_PROGRAM
    topology: Topology | None = None
    log_folder: Path | None = None
    time_s: float | None = None
    faults: tuple[Fault, ...] = ()
    worlds: tuple[PlannedWorld, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    on_progress: Callable[[int, int], None] | None = None
    remotes: list[Remote | None] = field(default_factory=list)
    files: tuple[Path, ...] = ()
    on_output: Callable[[str, str], None] | None = None
    about: dict[str, Any] = field(default_factory=dict)
    again: Callable[[], tuple[str, str] | None] | None = None
    keeping: CheckpointKeeping | None = None
    watcher: Watcher | None = None
    follower: Follower | None = None
    rests: bool = False

    @property
    def preloads(self) -> list[str]:
        """The modules that every node imports, apart from the user's code."""
        name = self.program.partition(":")[0]
        if not name.startswith("simcluster."):
            return []
        module: Any = importlib.import_module(name)
        more: Callable[[str], list[str]] = getattr(module, "preloads", lambda _: [])
        return [name, *more(self.config_json)]


HELD = ("samples", "held-out samples")


def unlike(held: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a line for each node whose samples differ from those of the first node.

    *held* maps the name of a node to the hashes that `prepare` returned, in the order of HELD.
    """
    (first, theirs), *rest = held.items()
    return [
        f"{name} holds other {what} than {first}"
        for name, own in rest
        for what, mine, other in zip_longest(HELD, own, theirs)
        if mine != other
    ]


def places(topology: Topology, options: Mapping[str, Any]) -> tuple[list[tuple[str, int] | None], list[Remote | None]]:
    """Return (addresses, remotes) for a ClusterJob, by rank.

    A node with the key `ssh` is started by ssh, unless the option *ssh* is false. If the options
    name a rendezvous or a coordinator, other nodes with an address are started by hand. All
    remaining nodes start on this machine.
    """
    by_ssh = options.get("ssh", True)
    meets = any(options.get(name) is not None for name in ("rendezvous", "coordinator"))
    addresses: list[tuple[str, int] | None] = []
    remotes: list[Remote | None] = []
    for node in map(topology.nodes.__getitem__, topology.workers):
        port = node.port or 0
        remote = None
        if by_ssh and node.ssh is not None:
            remote = Remote(node.ssh, node.command or Remote.command, node.address, port)
        remotes.append(remote)
        addresses.append((node.address, port) if meets and node.address and remote is None else None)
    return addresses, remotes
