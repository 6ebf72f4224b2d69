"""The arguments of a rank's process, and how its run runs the script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from simcluster.topology.read.rank_places import RankPlace


@dataclass(frozen=True)
class ScriptRun:
    """How a run runs its script.

    *is_simulated*: clocks are the cluster's, and work is counted. *is_gloo*: calls are gloo's. *steps*: the script is
    ended after that many; 0 for no limit. *computes*: tensors have values. *places* are those of the ranks, *devices*
    what `torch.cuda` tells a script of each one's device: its name and its memory in bytes, if the topology states it.
    """

    is_simulated: bool
    is_gloo: bool
    steps: int
    computes: bool
    places: tuple[RankPlace, ...]
    devices: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class RankStart:
    """The arguments of the process of number *rank*, in *run*.

    *script* is a file; if *module* is given, it is that module's, which is found from *root*. *folder* is where it was
    started, with the variables of *environment*; relative files that it writes go to *files*, if that is given.
    *output* gets what it prints. *cost* and *loader*, in the simulator: what its work takes, see work_meter and
    loader_time. *restarts*: those so far, and the most. *meeting*: where the processes of gloo meet, a host and a port.
    """

    run: ScriptRun
    rank: int
    script: str
    module: str
    root: Path
    args: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    files: Path | None
    output: Connection
    seed: int | None
    restarts: tuple[int, int]
    cost: str
    loader: str
    meeting: tuple[str, int] | None = None

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.run.places)

    @property
    def place(self) -> RankPlace:
        """The rank's own place."""
        return self.run.places[self.rank]
