"""The command `simcluster verify`: test an algorithm, and print a table of its properties."""

from __future__ import annotations

import shutil
from typing import Annotated, Any

import typer
from typer import Option

from simcluster.cli.terminal.options import Json, named, named_argument, names_of, overrides, print_json
from simcluster.errors import UsageError
from simcluster.process.loading import torch_loads


def verify(
    algorithm: Annotated[str, named_argument("ALGORITHM", "A name, or file.py:function.", names_of("algorithms"))],
    workload: Annotated[
        str | None,
        named(
            "W",
            "A name, or file.py:function. By default a small problem that exposes every difference.",
            names_of("workloads"),
        ),
    ] = None,
    backend: Annotated[str, Option(metavar="NAME", help="sim, sockets or both.")] = "both",
    nodes: Annotated[
        str | None, Option(metavar="N,N,...", help="The world sizes; by default 1,2,3,4,7, with --quick 1,2,3.")
    ] = None,
    quick: Annotated[bool, Option("--quick", help="Skip the slow checks.")] = False,
    seed: Annotated[int, Option(metavar="N", help="The seed of all randomness.")] = 0,
    sets: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the algorithm, e.g. pull_interval=4; or of the workload, e.g. workload.features=84. "
            "May be repeated.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Test an algorithm against its claim and general laws."""
    with torch_loads():
        from simcluster.lab.verify import verify as hold
        from simcluster.lab.verify.subject import workload_block

    settings, changes = _settings(sets)
    if changes and workload is None:
        raise UsageError("--set workload", ", ".join(changes), "--workload, too: these are its settings")
    try:
        sizes = None if nodes is None else sorted({int(part) for part in nodes.split(",")})
    except ValueError:
        raise UsageError("--nodes", repr(nodes), "whole numbers and commas, like 1,2,3") from None
    wanted = {**workload_block(workload), **changes} if changes and workload is not None else workload
    found = hold(algorithm, workload=wanted, settings=settings, nodes=sizes, backend=backend, seed=seed, quick=quick)
    if as_json:
        print_json(found.to_dict())
    else:
        print(found.table(shutil.get_terminal_size((120, 24)).columns))
    raise typer.Exit(0 if found.ok else 1)


def _settings(sets: list[str] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (the algorithm's settings, the workload's settings)."""
    algorithm: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    for key, value in overrides(sets).items():
        block, dot, name = key.rpartition(".")
        if dot and block not in ("algorithm", "workload"):
            raise UsageError(f"--set {key}", "", "NAME=VALUE, algorithm.NAME=VALUE or workload.NAME=VALUE")
        (workload if block == "workload" else algorithm)[name] = value
    return algorithm, workload
