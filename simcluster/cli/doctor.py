"""`simcluster doctor`: check this machine or those of a topology, and say how to fix problems."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from simcluster.backend import real_nodes
from simcluster.cli.terminal.options import Compute, Json, SshConfig, SshOptions, named_argument, names_of, print_json
from simcluster.errors import UsageError
from simcluster.process.terminal import columns
from simcluster.units import format_size

HEAD = (
    "node",
    "reach",
    "ssh",
    "python",
    "simcluster",
    "torch",
    "clock ms",
    "route",
    "free memory",
    "accelerator",
    "compute",
)


def doctor(
    topology: Annotated[
        str | None,
        named_argument(
            "TOPOLOGY", "A topology file or name; omit it to look at this machine alone.", names_of("topologies")
        ),
    ] = None,
    timeout: Annotated[float, Option(metavar="SECONDS", help="The time that each machine has to answer.")] = 30.0,
    compute: Compute = None,
    ssh_config: SshConfig = None,
    ssh_options: SshOptions = None,
    as_json: Json = False,
) -> None:
    """Report what is missing on this machine, or on every machine of a topology.

    Nothing is trained or changed. A line says how to get each missing component. The exit code is 1
    if a needed one is missing.
    """
    if topology is None:
        raise typer.Exit(_here(as_json))
    from simcluster.topology import load
    from simcluster.topology.idle_links import simulated_only
    from simcluster.topology.model.compute import wrong_compute
    from simcluster.topology.read.overrides import ALL

    if compute is not None and (wrong := wrong_compute(compute)):
        raise UsageError("--compute", repr(compute), wrong)
    cluster = load(topology, overrides={f"nodes.{ALL}.compute": compute} if compute is not None else {})
    config = str(Path(ssh_config).absolute()) if ssh_config is not None else None
    rows = real_nodes().examine(cluster, timeout, config, ssh_options or [])
    is_well = not any(row.problems for row in rows)
    if as_json:
        print_json({"topology": cluster.name, "ok": is_well, "nodes": [asdict(row) for row in rows]})
    else:
        print(*columns([HEAD, *map(_cells, rows)]), sep="\n")
        lines = [f"{row.node}: {one.what}\n  {one.do}" for row in rows for one in row.problems]
        taken = [f"{row.node} connects to {peer} over {link}" for row in rows for peer, link in row.links.items()]
        told = [*taken, *simulated_only(cluster)]
        print(*([""] if told else []), *told, "", *(lines or ["no problem found"]), sep="\n")
    raise typer.Exit(0 if is_well else 1)


def _here(as_json: bool) -> int:
    """Print the findings about this machine; return 1 if a needed component is missing, else 0."""
    from simcluster.cli.machine import findings

    found = findings()
    is_well = all(one.ok or not one.needed for one in found)
    if as_json:
        print_json({"ok": is_well, "machine": [asdict(one) for one in found]})
        return 0 if is_well else 1
    print(*columns([(_verdict(one), one.name, one.found) for one in found]), sep="\n")
    missing = [one for one in found if one.do]
    if missing:
        print("", *(f"{one.name}: {one.do}" for one in missing), sep="\n")
    print("", "a run can start here" if is_well else "a run cannot start here", sep="\n")
    return 0 if is_well else 1


def _verdict(one: Any) -> str:
    if one.ok:
        return "ok"
    return "missing" if one.needed else "optional"


def _cells(row: Any) -> tuple[str, ...]:
    clock = "-"
    if row.clock_offset_ms is not None:
        clock = f"{row.clock_offset_ms:+.1f} ± {row.clock_uncertainty_ms:.1f}"
    route = "-"
    if row.route is not None:
        via = f" via {row.route.gateway}" if row.route.gateway else ""
        route = f"{row.route.interface or '?'} from {row.route.source}{via}"
    works = {None: "-", True: "works", False: "fails"}[row.ssh_works]
    memory = "-" if row.free_memory_bytes is None else format_size(row.free_memory_bytes)
    reach = f"{row.way}{' ' + row.ssh if row.ssh else ''}{' at ' + row.address if row.address else ''}"
    known = [value or "-" for value in (row.python, row.simcluster, row.torch)]
    return (row.node, reach, works, *known, clock, route, memory, row.accelerator or "-", row.compute)
