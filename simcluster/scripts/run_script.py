"""The algorithm `script`: each rank runs a torch.distributed program in a separate process.

    script: {file: train.py, args: [--lr, 0.1]}

In an experiment, this is an abbreviation for the algorithm `script` with a workload without data,
since the program has its own model and data.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from simcluster.algorithms.facts import Facts
from simcluster.documents.script_code import place_here, root_of
from simcluster.runs.calls import SCRIPT
from simcluster.scripts.gloo_program import run_with_gloo
from simcluster.scripts.messages import RankStart, ScriptRun
from simcluster.scripts.node_program import run_on_cluster
from simcluster.scripts.printed_lines import log_output, own_output, shown_meanwhile
from simcluster.scripts.rank.script_files import remove_links
from simcluster.transport import Transport
from simcluster.workloads import Replica, Workload, sgd

NAME = SCRIPT
MOST_RANKS = 4096
LOGS, FILES = "logs", "files"
"""Directories in a run's folder: the logs with the output of ranks, and the files that ranks write
to relative paths.
"""


def script_attempts(document: Mapping[str, Any], folder: Path, most: int, prints: bool) -> Iterator[str]:
    """Yield a configuration for each attempt of the run that the resolved *document* describes.

    In each, the algorithm's settings have the run's *folder*, the number of restarts so far, the
    limit *most* on restarts, and whether rank 0 *prints* on the terminal.
    """
    for restarts in itertools.count():
        attempt = {"folder": str(folder.resolve()), "restarts": restarts, "max_restarts": most, "prints": prints}
        yield json.dumps({**document, "algorithm": {**document["algorithm"], **attempt}})


def script_for(run: ScriptRun) -> Callable[..., Coroutine[Any, Any, None]]:
    """Return the algorithm `script` for *run*."""

    @Facts(has_model=False, running="none")
    async def script(
        node: Transport,
        replica: Replica,
        *,
        file: str,
        module: str = "",
        args: Sequence[str] = (),
        cost: Literal["counted", "measured", "free"] = "counted",
        loader: Literal["free", "measured"] = "free",
        schedules: Literal["own", "gloo"] = "own",
        pass_local_rank: bool = False,
        seed: int | None = None,
        folder: str = "",
        restarts: int = 0,
        max_restarts: int = 0,
        prints: bool = True,
    ) -> None:
        """Run the program *file* with *args*, as the module *module* if that is not empty.

        *cost*: in the simulator, computing is `counted` (by FLOPs, bytes and operators, for the
        topology's device), `measured` (as processor time here, scaled to the device), or `free`.
        *loader*: the batches of a DataLoader's workers are `free` or `measured`. *schedules*: calls
        use the library's `own` schedules or those of `gloo`. *pass_local_rank*: add the argument
        --local-rank=N. *seed*: the seed of random, numpy and torch; None leaves them unseeded.
        *folder*: the folder of the run. *restarts*: the number of restarts so far. *max_restarts*:
        the limit on restarts. *prints*: show rank 0's output on the terminal.
        """
        here, place = place_here(Path(file)), run.places[node.rank]
        # A real node's own output goes to its log already, except rank 0's with gloo.
        is_here = folder and (run.is_simulated or (run.is_gloo and node.rank == 0))
        log = Path(folder) / LOGS / f"{node.name}.log"
        # Keep the lines that are already in a real node's log.
        is_new = run.is_simulated and not restarts
        start = RankStart(
            run=run,
            rank=node.rank,
            size=node.size,
            place=place,
            script=str(here),
            module=module,
            root=root_of(here, module),
            args=((f"--local-rank={place.local_rank}",) if pass_local_rank else ()) + (*map(str, args),),
            folder=Path.cwd(),
            environment=dict(os.environ),
            files=Path(folder) / FILES if folder else None,
            output=log_output(log, is_new=is_new) if is_here else own_output(),
            seed=seed,
            restarts=(restarts, max_restarts),
            cost=cost,
            loader=loader,
        )
        own = shown_meanwhile(log, has_own_lines=not run.is_simulated)
        with own if is_here and prints and node.rank == 0 else nullcontext():
            await (run_with_gloo(node, start) if run.is_gloo else run_on_cluster(node, start, schedules))

    return script


@contextmanager
def files_kept(block: Mapping[str, Any], folder: Path, shown: str | None) -> Iterator[None]:
    """Within the block, show the output of the node *shown*, if it is given. Afterwards keep only
    files that the script has written.

    *folder* is the folder of the run. *block* describes the run's algorithm; if that is not
    `script`, do nothing.
    """
    if block.get("name") != NAME:
        yield
        return
    # Otherwise the script would find the files of an earlier run.
    shutil.rmtree(folder / FILES, ignore_errors=True)
    try:
        with shown_meanwhile(folder / LOGS / f"{shown}.log") if shown is not None else nullcontext():
            yield
    finally:
        remove_links(folder / FILES)


def no_workload() -> Workload:
    """Return a placeholder for the workload, which is never used: a script has its own model and
    data.
    """
    data = (torch.zeros(MOST_RANKS, 1), torch.zeros(MOST_RANKS, dtype=torch.long))
    return Workload(lambda: nn.Linear(1, 1), nn.functional.cross_entropy, data, sgd(0.1), 1)
