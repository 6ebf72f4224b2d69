"""The commands that ask the simulator alone: `simcluster flows` and `simcluster bench`.

This file knows options and what is printed. It must not know how anything is simulated.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from simcluster.cli_options import Json

bench_app = typer.Typer(
    help="Measure what simulating costs on this machine.", no_args_is_help=True, rich_markup_mode=None
)


@bench_app.callback()
def _bench() -> None:
    pass


def flows(
    topology: Annotated[str, typer.Option(metavar="FILE", help="A topology file or name.")],
    flows: Annotated[
        Path, typer.Option(metavar="FILE", help="A JSON list of {src, dst, bytes, start}; start in seconds.")
    ],
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="maxmin (ideal fluid) or lv08 (SimGrid's TCP); else the topology's."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of jitter, losses and background traffic.")] = 0,
    as_json: Json = False,
) -> None:
    """Time plain flows over a topology: when is each there?"""
    from simcluster.experiment.flows import finish_times, read_flows
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
    nodes: Annotated[int, typer.Option(metavar="N", help="How many.")] = 128,
    size_bytes: Annotated[int, typer.Option("--bytes", metavar="N", help="Of the vector.")] = 100_000_000,
    as_json: Json = False,
) -> None:
    """Simulate a ring all-reduce on a star.

    Its links are full duplex, of 125 MB/s and 25 us each.
    """
    from simcluster.bench import bench_simulator

    result = bench_simulator(nodes, size_bytes)
    if as_json:
        print(json.dumps(result))
        return
    per_message_us = result["wall_s"] / max(1, result["messages"]) * 1e6
    print(f"ring all-reduce of {size_bytes:,} bytes on {nodes} nodes: {result['elapsed_s']:.9g} s of virtual time")
    print(f"  {result['messages']:,} messages in {result['wall_s']:.2f} s of wall time: {per_message_us:.1f} us each")
    print(f"  peak memory {result['peak_rss_mb']:.0f} MB")
