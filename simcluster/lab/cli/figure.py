"""The command `simcluster figure`: draw one figure of a run, a sweep or a what-if to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from simcluster.cli.terminal.options import overrides
from simcluster.cli.terminal.show import check_target, wrapped, write_file
from simcluster.errors import UsageError

SUFFIXES = (".svg", ".pdf", ".png", ".html")


def figure(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="The folder of a run, a sweep or a what-if.")],
    name: Annotated[str | None, Argument(metavar="NAME", help="The figure to draw; omit it to list all.")] = None,
    settings: Annotated[
        list[str] | None, Argument(metavar="KEY=VALUE", help="A setting of the figure, e.g. x=bytes.")
    ] = None,
    out: Annotated[
        Path | None,
        Option(metavar="FILE", help="Ends in .svg, .pdf or .png (extra plot-static), or .html: interactive."),
    ] = None,
    others: Annotated[
        list[Path] | None,
        Option("--with", metavar="RUN", help="Add this run: convergence, consensus, predicted_measured."),
    ] = None,
    width_in: Annotated[float, Option("--width", metavar="INCHES", help="The width in print.")] = 6.5,
    height_in: Annotated[
        float | None, Option("--height", metavar="INCHES", help="The height in print; by default as in a browser.")
    ] = None,
) -> None:
    """Draw one figure of a run, a sweep or a what-if to a file."""
    from simcluster.lab.cli.figure_names import about, check_named, figures_of

    figures = figures_of(folder, others or [])
    if name is None:
        for known, draw in figures.items():
            print(wrapped(f"  {known:<22} {about(draw)}"))
        return
    check_named(figures, name, given := overrides(settings, name))
    if out is None or out.suffix.lower() not in SUFFIXES:
        found = str(out) if out is not None else "nothing"
        raise UsageError("--out", found, f"a file that ends in {', '.join(SUFFIXES)}")
    drawn = figures[name](**given)
    if out.suffix.lower() == ".html":
        from simcluster.lab.reports.html_page import page, section

        title = f"{name} of {folder.name}"
        place = '<div class="figure" data-figure="figure"></div>'
        out = check_target(out)
        write_file(out, page(title, section(title, "", place), {"figure": drawn}))
    else:
        from simcluster.lab.reports.export import save_figure

        save_figure(drawn, out, width_in=width_in, height_in=height_in)
    print(out)
