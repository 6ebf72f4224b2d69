"""The commands `simcluster topology` and `flows`: what is asked of a topology alone."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from simcluster.backend import simulator
from simcluster.cli.terminal.options import Json, NetworkSeed, TopologyFile, named, names_of
from simcluster.cli.terminal.show import check_target, write_file
from simcluster.errors import Problem, UsageError

SUMMARY = "Check and draw topology files."


def add_topology_commands(family: typer.Typer) -> None:
    """Add the commands after `simcluster topology` to *family*."""
    family.command()(check)
    family.command()(draw)


def check(file: TopologyFile) -> None:
    """Check a topology file: print all errors at once, or a description."""
    from simcluster.topology import describe, load

    print(describe(load(file)))


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
    from simcluster.topology import load
    from simcluster.topology.plain_flows import read_flows

    cluster = load(topology)
    wanted = read_flows(flows, cluster)
    finish_s = simulator().finish_times(cluster, wanted, model, seed)
    if as_json:
        print(json.dumps({"finish_s": [end_s if math.isfinite(end_s) else None for end_s in finish_s]}))
        return
    width = max([len(f"{flow.source} -> {flow.target}") for flow in wanted], default=0)
    for flow, end_s in zip(wanted, finish_s, strict=True):
        done = f"done at {end_s:.9g} s" if math.isfinite(end_s) else "never done"
        print(f"{f'{flow.source} -> {flow.target}':<{width}}  {flow.size_bytes:>14,.0f} B  {done}")
