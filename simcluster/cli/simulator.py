"""Commands that need no experiment: `simcluster topology`, `calibrate`, `flows` and `bench`."""

from __future__ import annotations

import json
import math
from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from simcluster.catalogue import names
from simcluster.cli.inference.bench import serving
from simcluster.cli.terminal.complete import operations, schedules
from simcluster.cli.terminal.help import WIDTH, Group
from simcluster.cli.terminal.options import (
    Compute,
    Json,
    KeyFile,
    Rendezvous,
    Sets,
    TopologyFile,
    named,
    named_argument,
    names_of,
    overrides,
    real_options,
)
from simcluster.cli.terminal.show import check_target, write_file
from simcluster.documents.limits import MOST_WHOLE
from simcluster.errors import Problem, UsageError, nearest
from simcluster.process.loading import torch_loads

NetworkSeed = Annotated[
    int, Option("--seed", metavar="N", min=0, max=MOST_WHOLE, help="Of jitter, losses and background traffic.")
]

topology_app = typer.Typer(
    help="Check and draw topology files.",
    no_args_is_help=True,
    rich_markup_mode=None,
    cls=Group,
    context_settings=WIDTH,
)
bench_app = typer.Typer(
    help="Time a collective, served models, the simulator, or real transports.",
    no_args_is_help=True,
    rich_markup_mode=None,
    cls=Group,
    context_settings=WIDTH,
)
bench_app.command()(serving)


@topology_app.command()
def check(file: TopologyFile) -> None:
    """Check a topology file: print all errors at once, or a description."""
    from simcluster.topology import describe, load

    print(describe(load(file)))


@topology_app.command()
def draw(
    file: TopologyFile,
    out: Annotated[Path | None, Option(metavar="FILE", help="The page; by default NAME.html here.")] = None,
) -> None:
    """Draw a topology as an HTML page with link and device labels."""
    from simcluster.topology import draw_html, load

    topology = load(file)
    target = check_target(out or Path(f"{topology.name}.html"))
    if target.suffix.lower() not in (".html", ".htm"):
        raise UsageError(Problem("--out", str(target), "a file that ends in .html: an HTML page is written"))
    write_file(target, draw_html(topology))
    print(target)


def flows(
    topology: Annotated[str, named("FILE", "A topology file or name.", names_of("topologies"))],
    flows: Annotated[Path, Option(metavar="FILE", help="A JSON list of {src, dst, bytes, start}; start in seconds.")],
    model: Annotated[
        str | None,
        Option(metavar="NAME", help="maxmin (ideal fluid) or lv08 (SimGrid's TCP); by default the topology's."),
    ] = None,
    seed: NetworkSeed = 0,
    as_json: Json = False,
) -> None:
    """Time plain flows over a topology: when does each arrive?"""
    from simcluster.bench.flows import finish_times, read_flows
    from simcluster.topology import load

    cluster = load(topology)
    wanted = read_flows(flows, cluster)
    finish_s = finish_times(cluster, wanted, model, seed)
    if as_json:
        print(json.dumps({"finish_s": [end_s if math.isfinite(end_s) else None for end_s in finish_s]}))
        return
    width = max([len(f"{flow.source} -> {flow.target}") for flow in wanted], default=0)
    for flow, end_s in zip(wanted, finish_s, strict=True):
        done = f"done at {end_s:.9g} s" if math.isfinite(end_s) else "never done"
        print(f"{f'{flow.source} -> {flow.target}':<{width}}  {flow.size_bytes:>14,.0f} B  {done}")


@bench_app.command()
def simulator(
    nodes: Annotated[int, Option(metavar="N", help="The number of nodes.")] = 128,
    size_bytes: Annotated[int, Option("--bytes", metavar="N", help="The size of the vector.")] = 100_000_000,
    as_json: Json = False,
) -> None:
    """Simulate a ring all-reduce on a star.

    Its links are full duplex, with 125 MB/s and 25 us each.
    """
    from simcluster.bench.simulator import bench_simulator

    result = bench_simulator(nodes, size_bytes)
    if as_json:
        print(json.dumps(result))
        return
    per_message_us = result["wall_s"] / max(1, result["messages"]) * 1e6
    print(f"ring all-reduce of {size_bytes:,} bytes on {nodes} nodes: {result['elapsed_s']:.9g} s of virtual time")
    print(f"  {result['messages']:,} messages in {result['wall_s']:.2f} s of wall time: {per_message_us:.1f} us each")
    print(f"  peak memory {result['peak_rss_mb']:.0f} MB")


@bench_app.command()
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
    from simcluster.bench.collective import bench_collective
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


@bench_app.command()
def transport(
    nodes: Annotated[str, Option(metavar="N,...", help="The number of processes, or several numbers.")] = "2,4",
    sizes: Annotated[
        str, Option(metavar="SIZE,...", help="The size of each process's vector of floats.")
    ] = "10kB,1MB,25MB,100MB",
    repeats: Annotated[int, Option(metavar="N", help="The repetitions of each; medians are printed.")] = 9,
    as_json: Json = False,
) -> None:
    """Time real nodes on this machine against gloo.

    Ring all-reduce, and a push to a parameter server followed by a pull, alternating with torch.distributed.
    """
    from simcluster.bench.transport import bench_transport

    rows = bench_transport(nodes, sizes, repeats)
    if as_json:
        print(json.dumps(rows))
        return
    print(f"{'operation':<10}  nodes        bytes      ours ms      gloo ms  ratio  of CPU time")
    for row in rows:
        times = f"{row['ours_s'] * 1e3:>11.3f}  {row['gloo_s'] * 1e3:>11.3f}"
        ratios = f"{row['ratio']:>5.2f}  {row['cpu_ratio']:>11.2f}"
        print(f"{row['operation']:<10}  {row['nodes']:>5}  {row['bytes']:>11,}  {times}  {ratios}")


def calibrate(
    topology: Annotated[
        str, named_argument("TOPOLOGY", "A file or name: the nodes and links to measure.", names_of("topologies"))
    ],
    out: Annotated[
        Path | None, Option(metavar="FILE", help="The file to write; by default NAME-measured.yaml here.")
    ] = None,
    workload: Annotated[
        str, Option(metavar="NAME", help="The workload that measures devices: a name, file.py:function, or none.")
    ] = "mnist_mlp",
    sets: Sets = None,
    backend: Annotated[str, Option(metavar="NAME", help="sockets, or sim to check the method itself.")] = "sockets",
    seed: Annotated[int, Option(metavar="N", help="The seed of the workload's data.")] = 0,
    compute: Compute = None,
    rendezvous: Rendezvous = None,
    key_file: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Measure a cluster's links and devices and write its topology.

    The new file is TOPOLOGY with the measured numbers.
    """
    with torch_loads():
        from simcluster.calibrate import calibrate as measure
        from simcluster.calibrate.write import calibrated_document, calibrated_text, describe
    from simcluster.topology import load

    if backend not in names("backends"):
        raise UsageError(Problem("--backend", repr(backend), f"a backend: {nearest(backend, names('backends'))}"))
    cluster = load(topology)
    target = check_target(out or Path(f"{cluster.name}-measured.yaml"))
    if target.exists() and Path(topology).exists() and target.samefile(topology):
        raise UsageError(Problem("--out", str(target), "a file other than the one that is measured"))
    block = {"path" if ":" in workload else "name": workload}
    calibration = measure(
        cluster, backend=backend, workload=None if workload == "none" else block, overrides=overrides(sets),
        options=real_options(None, rendezvous=rendezvous, key_file=key_file), seed=seed, compute=compute,
    )  # fmt: skip
    write_file(target, calibrated_text(calibration, date.today()))
    if as_json:
        print(json.dumps(calibrated_document(calibration), indent=2))
    else:
        print("\n".join(describe(calibration)))
        print(target)
