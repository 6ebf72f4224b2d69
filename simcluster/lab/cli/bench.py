"""The commands `simcluster bench`: time a collective, the simulator, or real transports."""

from __future__ import annotations

import ast
import json
from importlib import resources
from typing import Annotated, Any

import typer
from typer import Option

from simcluster.cli.terminal.options import Json, NetworkSeed, named, names_of, overrides, with_defaults

SUMMARY = "Time a collective, served models, the simulator, or real transports."


def add_bench_commands(family: typer.Typer) -> None:
    """Add the subcommands of `simcluster bench` to *family*."""
    for function in (simulator, with_defaults(collective), transport):
        family.command()(function)


def simulator(
    nodes: Annotated[int, Option(metavar="N", help="The number of nodes.")] = 128,
    size_bytes: Annotated[int, Option("--bytes", metavar="N", help="The size of the vector.")] = 100_000_000,
    as_json: Json = False,
) -> None:
    """Simulate a ring all-reduce on a star.

    Its links are full duplex, with 125 MB/s and 25 us each.
    """
    from simcluster.lab.bench.simulator import bench_simulator

    result = bench_simulator(nodes, size_bytes)
    if as_json:
        print(json.dumps(result))
        return
    per_message_us = result["wall_s"] / max(1, result["messages"]) * 1e6
    print(f"ring all-reduce of {size_bytes:,} bytes on {nodes} nodes: {result['elapsed_s']:.9g} s of virtual time")
    print(f"  {result['messages']:,} messages in {result['wall_s']:.2f} s of wall time: {per_message_us:.1f} us each")
    print(f"  peak memory {result['peak_rss_mb']:.0f} MB")


def operations() -> list[str]:
    """Return the completions of `--op`: all operations."""
    return list(_schedules())


def schedules(ctx: typer.Context) -> list[str]:
    """Return the completions of `--schedule`.

    They are the schedules of the operation given by `--op`, or all schedules if there is none.
    """
    found = _schedules()
    of_one = found.get(ctx.params.get("op", ""))
    return of_one if of_one is not None else sorted({name for names in found.values() for name in names})


def _schedules() -> dict[str, list[str]]:
    """Return operation -> its schedules.

    They are parsed from the source, since importing it would import torch.
    """
    source = (resources.files("simcluster") / "collectives" / "schedules.py").read_text(encoding="utf-8")
    body: list[Any] = ast.parse(source).body
    table: Any = next(one.value for one in body if isinstance(one, ast.AnnAssign) and isinstance(one.value, ast.Dict))
    return {
        operation.value: [name.value for name in known.keys]
        for operation, known in zip(table.keys, table.values, strict=True)
    }


def collective(
    op: Annotated[str, named("NAME", "all_reduce, all_gather, broadcast, barrier, ...", operations)],
    topology: Annotated[str, named("FILE", "A topology file or name.", names_of("topologies"))],
    schedule: Annotated[
        str, named("NAME", "naive, ring, ...: a wrong name is answered with those of the operation.", schedules)
    ] = "naive",
    size_bytes: Annotated[int, Option("--bytes", metavar="N", help="M in the formulas.")] = 1_000_000,
    sets: Annotated[
        list[str] | None,
        Option("--set", metavar="K=V", help="order=near-first, far-first or a list; first, root, pieces."),
    ] = None,
    seed: NetworkSeed = 0,
    as_json: Json = False,
) -> None:
    """Time a collective operation on a topology.

    All workers enter at once; nothing is computed, so devices do not matter.
    """
    from simcluster.lab.bench.collective import bench_collective
    from simcluster.topology import load

    result = bench_collective(op, schedule, load(topology), size_bytes, overrides(sets), seed)
    if as_json:
        print(json.dumps(result))
        return
    print(
        f"{result['op']} of {size_bytes:,} bytes by {result['schedule']} on {result['nodes']} nodes of "
        f"{result['topology']}: {result['elapsed_s']:.9g} s of virtual time"
    )
    print(
        f"  {result['messages']:,} messages with {result['bytes_sent']:,} bytes of tensors "
        f"and {result['header_bytes']:,} bytes of headers"
    )


def transport(
    nodes: Annotated[str, Option(metavar="N,...", help="The number of processes, or several numbers.")] = "2,4",
    sizes: Annotated[
        str, Option(metavar="SIZE,...", help="The size of each process's vector of floats.")
    ] = "10kB,1MB,25MB,100MB",
    repeats: Annotated[int, Option(metavar="N", help="The repetitions of each; medians are printed.")] = 9,
    as_json: Json = False,
) -> None:
    """Time real nodes on this machine against gloo.

    The operations are a ring all-reduce, and a push to a parameter server followed by a pull.
    Repetitions alternate with torch.distributed.
    """
    from simcluster.lab.bench.transport import bench_transport

    rows = bench_transport(nodes, sizes, repeats)
    if as_json:
        print(json.dumps(rows))
        return
    print(f"{'operation':<10}  nodes        bytes      ours ms      gloo ms  ratio  of CPU time")
    for row in rows:
        times = f"{row['ours_s'] * 1e3:>11.3f}  {row['gloo_s'] * 1e3:>11.3f}"
        ratios = f"{row['ratio']:>5.2f}  {row['cpu_ratio']:>11.2f}"
        print(f"{row['operation']:<10}  {row['nodes']:>5}  {row['bytes']:>11,}  {times}  {ratios}")
