"""The job of a backend: the nodes in rank order and where they start, the program, the faults."""

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

NODE_PROGRAM = "simcluster.experiment.node:run_node"


@dataclass(frozen=True)
class Remote:
    """A node on another machine: *ssh* is [user@]host, *command* starts simcluster there.

    *address* is where its peers reach it, by default the address that the launcher reaches it at; *port* 0 is any.
    """

    ssh: str
    command: tuple[str, ...] = ("python3", "-m", "simcluster")
    address: str | None = None
    port: int = 0


@dataclass(frozen=True)
class ClusterJob:
    """One run. Index i of *names*, *addresses* and *remotes* is rank i.

    A node with an address is started by hand and waited for; one with a Remote is started there and given *files*, the
    user's code by its path here; all others are started here. *on_output* is called with (name, line) for each line
    that remote nodes print. *again* is called for a restart: it returns (configuration that resumes from a checkpoint,
    its place in words), or None without a checkpoint. *keeping* takes checkpoints and has the state to start from.

    *program* is "module:function" of `async def program(node, recorder, config_json) -> NodeRecord`, which every node
    awaits with *config_json* verbatim. If its module has a function `prepare(config_json)`, each node's process calls
    it first, and the clock starts once all have finished: reading data is not part of a run. It may return hashes of
    what all nodes must hold alike, see `unlike`. A function
    `preloads(config_json)` names other modules that every node imports; where one has a function `before_threads()`,
    a node's process that is started for the run calls that before anything else. *faults* count time from the clock's
    start.
    *time_s*, if given, is when every node must have ended its algorithm by itself; in real time, a backend drops nodes
    that have not some time later. *options* are the backend's own settings; it reports unknown ones. *on_progress* is
    called with (rank, its last step); a *watcher* sees much more, a *follower* every row that nodes record. *rests*:
    each rank except 0 does nothing until rank 0 first sends to it, and ends with rank 0 (see `Facts.rests`). *about*
    has name, algorithm, topology and steps, for views of the run.
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
        """The modules that every node imports, none of them the user's."""
        name = self.program.partition(":")[0]
        if not name.startswith("simcluster."):
            return []
        module: Any = importlib.import_module(name)
        more: Callable[[str], list[str]] = getattr(module, "preloads", lambda _: [])
        return [name, *more(self.config_json)]


HELD = ("samples", "held-out samples")


def unlike(held: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a line for each node that holds other samples than the first; *held* has the hashes by node."""
    (first, theirs), *rest = held.items()
    return [
        f"{name} holds other {what} than {first}"
        for name, own in rest
        for what, mine, other in zip_longest(HELD, own, theirs)
        if mine != other
    ]


def places(topology: Topology, options: Mapping[str, Any]) -> tuple[list[tuple[str, int] | None], list[Remote | None]]:
    """Return (addresses, remotes) of a ClusterJob, by rank.

    A node with `ssh` is started by ssh unless the option *ssh* is false. Of the others, those with an address are
    started by hand if there is a meeting place; all the rest start here.
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
