"""The commands `simcluster topology check` and `draw`: a file in, words or a page out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simcluster.cli.files import check_target, write_file
from simcluster.cli.options import TopologyFile

topology_app = typer.Typer(help="Check and draw topology files.", no_args_is_help=True, rich_markup_mode=None)


@topology_app.command()
def check(
    file: TopologyFile,
) -> None:
    """Check a topology file: print all errors at once, or a description."""
    from simcluster.topology import describe, load

    print(describe(load(file)))


@topology_app.command()
def draw(
    file: TopologyFile,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The page; by default NAME.html here.")] = None,
) -> None:
    """Draw a topology as an HTML page with link and device labels."""
    from simcluster.topology import draw_html, load

    topology = load(file)
    target = check_target(out or Path(f"{topology.name}.html"))
    write_file(target, draw_html(topology))
    print(target)
