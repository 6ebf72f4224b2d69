"""The job of a backend: the nodes in rank order, the program, the faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simcluster.checkpoints.keeping import Keeping
    from simcluster.fault_plans.kinds import Fault
    from simcluster.topology import Topology
    from simcluster.watching.telling import Watcher

NODE_PROGRAM = "simcluster.experiment.node:run_node"


@dataclass(frozen=True)
class Remote:
    """A node that is started on another machine: *ssh* is [user@]host, *command* starts simcluster there.

    *address* is where its peers reach it, None for where it reaches the launcher from; *port* 0 is any free one.
    """

    ssh: str
    command: tuple[str, ...] = ("python3", "-m", "simcluster")
    address: str | None = None
    port: int = 0


@dataclass(frozen=True)
class ClusterJob:
    """One run. Index i of *names*, *addresses* and *remotes* is rank i.

    A node that has an address is waited for, since somebody starts it by hand; one that has a Remote is started there,
    and given *files*, own code by its path here; the others are started here. *on_output* is called with (name, line)
    for what those on other machines print. *again* is asked when the run is to be restarted: for the configuration that
    goes on from what was kept, and where that is in words; None if nothing was. *keeping* takes checkpoints and says
    what ranks begin with.

    *program* is "module:function" of `async def program(node, recorder, config_json) -> NodeRecord`, which every
    node awaits with *config_json* verbatim. If its module has a function `prepare(config_json)`, a node's process
    calls that first, and the clock starts when all have: reading data is no part of a run. *faults* count time from
    there. By *time_s*, if given, every node is to have ended its algorithm by itself; where time is real, a backend
    gives up on those that have not some time later. *options* are the backend's own settings; it names those that it
    does not know. *on_progress* is called with (rank, its last step); a *watcher* is shown far more.
    *about* has name, algorithm, topology and steps, for whoever watches.
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
    keeping: Keeping | None = None
    watcher: Watcher | None = None
