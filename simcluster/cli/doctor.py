"""`simcluster doctor`: what this machine has, or one row per node of a topology; a line per problem with what to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from simcluster.backend import real_nodes
from simcluster.cli.terminal.options import Compute, Json, SshConfig, SshOptions, named_argument, names_of
from simcluster.errors import Problem, UsageError
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
    """Say what is missing here, or on every machine of a topology.

    Nothing is trained or changed. Exit code 1: something needed is missing; each has a line with what to do.
    """
    if topology is None:
        raise typer.Exit(_here(as_json))
    from simcluster.topology import load
    from simcluster.topology.model.compute import wrong_compute
    from simcluster.topology.read.overrides import ALL

    if compute is not None and (wrong := wrong_compute(compute)):
        raise UsageError(Problem("--compute", repr(compute), wrong))
    cluster = load(topology, overrides={f"nodes.{ALL}.compute": compute} if compute is not None else {})
    config = str(Path(ssh_config).absolute()) if ssh_config is not None else None
    rows = real_nodes().examine(cluster, timeout, config, ssh_options or [])
    is_well = not any(row.problems for row in rows)
    if as_json:
        print(json.dumps({"topology": cluster.name, "ok": is_well, "nodes": [asdict(row) for row in rows]}, indent=2))
    else:
        print("\n".join(_table([HEAD, *map(_cells, rows)])))
        lines = [f"{row.node}: {one.what}\n  {one.do}" for row in rows for one in row.problems]
        print("", *(lines or ["no problem found"]), sep="\n")
    raise typer.Exit(0 if is_well else 1)


def _here(as_json: bool) -> int:
    """Print what this machine has; return 1 if something needed is missing."""
    from simcluster.cli.machine import findings

    found = findings()
    is_well = all(one.ok or not one.needed for one in found)
    if as_json:
        print(json.dumps({"ok": is_well, "machine": [asdict(one) for one in found]}, indent=2))
        return 0 if is_well else 1
    rows = [(_verdict(one), one.name, one.found) for one in found]
    print("\n".join(_table(rows)))
    missing = [one for one in found if one.do]
    if missing:
        print("", *(f"{one.name}: {one.do}" for one in missing), sep="\n")
    print("", "a run can start here" if is_well else "a run cannot start here", sep="\n")
    return 0 if is_well else 1


def _verdict(one: Any) -> str:
    return "ok" if one.ok else "missing" if one.needed else "optional"


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


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
