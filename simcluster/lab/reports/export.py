"""`simcluster.save_figure`: write a plotly figure to a file for a paper, with a headless browser.

The file's bytes depend only on the figure, the version of plotly, the browser and its fonts: dates
and random ids are fixed. Nothing is fetched: plotly.js comes from the package, MathJax is off, and
the browser's proxy is a port where nothing listens.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from simcluster.errors import Problem, UsageError, raise_all
from simcluster.paths.given_path import given_path
from simcluster.paths.inside import write_whole
from simcluster.process.installed import install_extra

WIDTH_IN = 6.5
"""Default width of a figure: the width of a page's text."""

PX_PER_IN = 108.0
"""Scale of figures on paper: 702 pixels in a browser span the width of the text."""

DOTS_PER_IN = {".svg": 96.0, ".pdf": 96.0, ".png": 200.0}
"""Suffix -> resolution.

SVG and PDF files state lengths, for which a browser assumes the 96 dpi of CSS.
"""

FONT = "'DejaVu Sans', Verdana, sans-serif"
"""Two fonts with the same letter widths: text keeps its layout if a viewer has only one of them."""

SIZE_PX = 12  # 8 pt on paper
DRAW_S = 120.0
"""Limit on the time to draw one figure."""

OFFLINE = "127.0.0.1:9"
SEEDED = """
        <script>
            let state = 1;
            Math.random = () => (state = state * 16807 % 2147483647) / 2147483647;
        </script>"""
"""A script that seeds Math.random, from which plotly draws the ids in an SVG."""

BROWSER = (
    "Google Chrome or Chromium, to draw for paper: `apt install chromium fonts-dejavu-core`, `kaleido_get_chrome`, or "
    "a browser's path in BROWSER_PATH"
)


def save_figure(
    figure: go.Figure, path: str | os.PathLike[str], *, width_in: float = WIDTH_IN, height_in: float | None = None
) -> Path:
    """Write *figure* to *path* (.svg, .pdf or .png) and return *path*.

    This function needs kaleido (extra `plot-static`) and a browser. *height_in* defaults to the
    figure's own. Raise UsageError if kaleido or a browser is missing or fails, if the suffix, the
    directory or a size is invalid, or if the file cannot be written.
    """
    target = given_path(path, "path")
    problems = []
    if target.suffix.lower() not in DOTS_PER_IN:
        problems.append(Problem("path", repr(str(target)), f"a name that ends in {', '.join(DOTS_PER_IN)}"))
    elif not target.absolute().parent.is_dir():
        problems.append(Problem("path", repr(str(target)), f"a file in a folder that exists, not in {target.parent}"))
    for name, size_in in (("width_in", width_in), ("height_in", height_in)):
        if size_in is not None and not 1 <= size_in <= 50:
            problems.append(Problem(name, repr(size_in), "inches, from 1 to 50"))
    raise_all(problems)
    content = drawn([figure], target.suffix.lower(), width_in, height_in)[0]
    try:
        write_whole(target.parent, target.name, content=content)
    except OSError as error:
        raise UsageError("path", str(target), f"a writable file ({error.strerror})") from None
    return target


def drawn(
    figures: Sequence[go.Figure], suffix: str, width_in: float = WIDTH_IN, height_in: float | None = None
) -> list[bytes]:
    """Return *figures* as the contents of files with *suffix*, all drawn by one browser.

    Raise UsageError if kaleido or a browser is missing or fails.
    """
    try:
        import kaleido
        from kaleido.errors import BrowserClosedError, BrowserFailedError, ChromeNotFoundError, KaleidoError
    except ImportError:
        raise UsageError("kaleido", "not installed", f"it, to draw for paper: {install_extra('plot-static')}") from None
    template = kaleido.PageGenerator(mathjax=False)
    template.header += SEEDED

    async def draw() -> list[bytes]:
        # The seeded template gives the same bytes every time; the proxy keeps the browser off the
        # network.
        async with (
            asyncio.timeout(DRAW_S * len(figures)),
            kaleido.Kaleido(n=1, page_generator=template, proxy_server=OFFLINE) as browser,
        ):
            return [await _draw(browser, figure, suffix, width_in, height_in) for figure in figures]

    try:
        with ThreadPoolExecutor(1) as pool:  # In a notebook, this thread already runs an event loop.
            contents = pool.submit(asyncio.run, draw()).result()
    except ChromeNotFoundError:
        raise UsageError("browser", os.environ.get("BROWSER_PATH", "none on the path"), BROWSER) from None
    except (BrowserClosedError, BrowserFailedError, KaleidoError, OSError, asyncio.InvalidStateError) as error:
        reason = str(error.args[0] if error.args else error) or type(error).__name__
        raise UsageError("browser", f"one that does not draw ({reason})", BROWSER) from error
    dated = rb"\(D:\d{14}"
    return [re.sub(dated, b"(D:20000101000000", one) for one in contents] if suffix == ".pdf" else contents


async def _draw(browser: Any, figure: go.Figure, suffix: str, width_in: float, height_in: float | None) -> bytes:
    page = go.Figure(figure)
    page.update_layout(font={"family": FONT, "size": SIZE_PX}, paper_bgcolor="white")
    page.update_annotations(bgcolor="rgba(255,255,255,0.8)")  # Keep the text readable where a line passes under it.
    height_px = height_in * PX_PER_IN if height_in else figure.layout.height or 420
    size = {"width": round(width_in * PX_PER_IN), "height": round(height_px)}
    options = {"format": suffix[1:], **size, "scale": DOTS_PER_IN[suffix] / PX_PER_IN}
    content: bytes = await browser.calc_fig(page.to_dict(), opts=options)
    return content
