"""Pages as Sphinx reads them: generated parts in place, and HTML anchors as targets of links.

A page asks for a part with a fenced block, ```{generated} NAME; GitHub's readers see its one line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

PART = re.compile(r"^```\{generated\} (\S+)\n(.*\n)*?```\n", flags=re.MULTILINE)
ANCHOR = re.compile(r'^(#+) <a id="([^"]+)"></a>', flags=re.MULTILINE)


def expand(text: str) -> str:
    """Return page *text* with its generated parts."""
    return PART.sub(lambda found: generated(found[1]), text)


@functools.cache
def generated(name: str) -> str:
    """Return the part *name*: python, algorithms, workloads, experiment or topology."""
    from support import python_api, schema_tables

    makers: dict[str, Callable[[], str]] = {"python": python_api.page}
    return makers.get(name, lambda: schema_tables.tables(name))()


def _read(app: Any, docname: str, source: list[str]) -> None:
    if app.env.doc2path(docname).suffix == ".md":
        source[0] = ANCHOR.sub(r"(\2)=\n\1 ", expand(source[0]))


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
