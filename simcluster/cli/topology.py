"""The commands that need a topology but no algorithm: `simcluster topology` and `flows`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from simcluster.backend import simulator
from simcluster.cli.terminal.options import Json, NetworkSeed, TopologyFile, named, names_of, with_defaults
from simcluster.cli.terminal.show import check_target, write_file
from simcluster.errors import UsageError

SUMMARY = "Check and draw topology files."


def add_topology_commands(family: typer.Typer) -> None:
    """Add the subcommands of `simcluster topology` to *family*."""
    family.command()(with_defaults(check))
    family.command()(with_defaults(draw))


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
        raise UsageError("--out", str(target), "a file that ends in .html: an HTML page is written")
    write_file(target, draw_html(topology))
    print(target)


def import_(
    file: Annotated[
        Path, Argument(metavar="FILE", help="A file of another tool: GML, GraphML, SimGrid, a host list, ...")
    ],
    out: Annotated[Path | None, Option(metavar="FILE", help="The file to write; by default NAME.yaml here.")] = None,
) -> None:
    """Write a file of another tool as a topology, with comments that say where each number comes from."""
    from simcluster.documents.recognise import READ, recognise
    from simcluster.documents.shipped import find
    from simcluster.topology.read.formats import read_foreign
    from simcluster.topology.read.formats.write import imported_text
    from simcluster.topology.read.read import check as check_document

    path = find("topologies", file)
    form = recognise(path)
    if form is None:
        raise UsageError("file", f"{path}, YAML or a form that is unknown", f"one of another tool: {READ}")
    target = check_target(out or Path(f"{path.stem}.yaml"))
    if target.exists() and target.samefile(path):
        raise UsageError("--out", str(target), "a file other than the one that is read")
    if out is None and target.exists():
        raise UsageError("--out", f"the file {target}, which exists", "--out FILE, to replace it or to write another")
    found = read_foreign(path, form)
    text, document = imported_text(found, path, target.parent)
    topology = check_document(document, path.stem)
    write_file(target, text)
    print(*filter(None, (topology.description, *found.warnings)), target, sep="\n")


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
    """Time plain flows over a topology, and print when each arrives.

    As in SimGrid, a flow first waits for its latency, and then its bytes compete for the bandwidth of that time.
    """
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
