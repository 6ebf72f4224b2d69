"""The command `simcluster torchrun`: `simcluster run --script` with torchrun's options."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option

from simcluster.cli.run import run
from simcluster.cli.terminal import options
from simcluster.cli.terminal.help import OUTPUT
from simcluster.cli.terminal.options import Json, Report, Sets
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.process.loading import torch_loads
from simcluster.spelling import nearest

SETTINGS: dict[str, Any] = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Settings of typer: pass on unknown options, so that `torchrun` can say what to use instead.

All options after the script belong to the script.
"""

_PLACES = "nothing: ranks find each other without a rendezvous; --topology says where they are"
_LOGS = "nothing: what each rank prints is in logs/ of the run folder"
_PROCESSES = "nothing: every rank is a forked process; simcluster bounds and ends it itself"
_VIRTUAL = "nothing: no agent watches the ranks"
INSTEAD = {
    "--rdzv-backend": _PLACES,
    "--rdzv-endpoint": _PLACES,
    "--rdzv-id": _PLACES,
    "--rdzv-conf": _PLACES,
    "--standalone": _PLACES,
    "--node-rank": _PLACES,
    "--master-addr": _PLACES,
    "--master-port": _PLACES,
    "--local-addr": _PLACES,
    "--role": _PLACES,
    "--log-dir": _LOGS,
    "--redirects": _LOGS,
    "--tee": _LOGS,
    "--local-ranks-filter": _LOGS,
    "--logs-specs": _LOGS,
    "--duplicate-stdout-filters": _LOGS,
    "--duplicate-stderr-filters": _LOGS,
    "--start-method": _PROCESSES,
    "--signals-to-handle": _PROCESSES,
    "--shutdown-timeout": _PROCESSES,
    "--numa-binding": _PROCESSES,
    "--virtual-local-rank": "--set script.args=...: the script reads LOCAL_RANK",
    "--monitor-interval": _VIRTUAL,
    "--event-log-handler": _VIRTUAL,
    "--no-python": "a Python file or -m MODULE: other programs are no ranks",
    "--run-path": "nothing: a script runs by its path anyway",
    "--use-env": "nothing: the environment always has the ranks",
}
"""Options of torchrun that are refused -> what to use instead."""

KNOWN = [
    "--nproc-per-node",
    "--nnodes",
    "-m",
    "--module",
    "--max-restarts",
    "--topology",
    "--backend",
    "--set",
    "--out",
]
KNOWN += ["--report", "--no-report", "--json"]
FLAGS = (
    "--standalone",
    "--no-python",
    "--run-path",
    "--use-env",
    "-m",
    "--module",
    "--report",
    "--no-report",
    "--json",
)


def torchrun(
    context: Context,
    words: Annotated[list[str] | None, Argument(metavar="SCRIPT [ARGS]", help="The script and its arguments.")] = None,
    nproc_per_node: Annotated[
        str, Option("--nproc-per-node", "--nproc_per_node", metavar="N", help="The number of ranks per machine.")
    ] = "1",
    nnodes: Annotated[str | None, Option(metavar="N", help="The number of machines; by default 1.")] = None,
    module: Annotated[bool, Option("-m", "--module", help="SCRIPT is the name of a module.")] = False,
    max_restarts: Annotated[
        int | None, Option("--max-restarts", "--max_restarts", metavar="N", help="The most restarts of all ranks.")
    ] = None,
    topology: Annotated[str | None, Option(metavar="FILE", help="The machines; by default a star of laptops.")] = None,
    backend: options.BackendName = None,
    sets: Sets = None,
    out: Annotated[Path | None, options.named("DIR", "Its folder; by default a new one in runs.", None, OUTPUT)] = None,
    report: Report = True,
    as_json: Json = False,
) -> None:
    """Run a script with torchrun's options, by default in the simulator."""
    words = list(words or ())
    refused = list(_refused(words))
    raise_all(refused)
    if not words:
        raise UsageError("SCRIPT", "none", "a torch.distributed program, as for torchrun")
    processes, machines = _number("--nproc-per-node", nproc_per_node), _number("--nnodes", nnodes or "1")
    if topology is None:
        cluster: Any = _star(machines)
        each = "1 rank" if processes == 1 else f"{processes} ranks"
        what = f"1 x86-laptop with {each}" if machines == 1 else f"{machines} machines, each an x86-laptop with {each}"
        print(f"note: {what}, at 1 Gbps; --topology has others", file=sys.stderr)
    else:
        cluster = topology
        if nnodes is not None:
            _check_machines(topology, machines)
    run(
        script=None if module else words[0], module=words[0] if module else None, script_args=words[1:],
        backend=backend, topology=cluster, sets=sets, nproc_per_node=processes if processes > 1 else None,
        max_restarts=max_restarts, out=out, report=report, as_json=as_json,
    )  # fmt: skip


def _refused(words: list[str]) -> Iterator[Problem]:
    """Yield a problem for each option before the script, and remove it from *words*."""
    while words and words[0].startswith("-"):
        option, separator, _ = words.pop(0).partition("=")
        name = option.replace("_", "-")
        if name not in KNOWN:
            found = "an option for real nodes" if name in INSTEAD else "an unknown option"
            yield Problem(option, found, INSTEAD.get(name) or nearest(name, KNOWN))
        if not separator and words and name not in FLAGS:
            words.pop(0)


def _number(option: str, given: str) -> int:
    if not given.isdecimal() or int(given) < 1:
        raise UsageError(option, repr(given), "a number of at least 1: a simulated cluster has a fixed size")
    return int(given)


def _star(machines: int) -> Any:
    with torch_loads():
        from simcluster.topology import Topology

    return Topology.star(machines)


def _check_machines(topology: str, machines: int) -> None:
    """Raise UsageError unless *topology* has exactly this number of *machines*."""
    with torch_loads():
        from simcluster.topology import load
        from simcluster.topology.read.rank_places import machine_count

    count = machine_count(load(topology))
    if count != machines:
        raise UsageError("--nnodes", str(machines), f"{count}, the machines of {topology}; or leave it out")
