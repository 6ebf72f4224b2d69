"""Pages as Sphinx reads them: generated parts in place, and HTML anchors as targets of links.

A page asks for a part with a fenced block, ```{generated} NAME; GitHub's readers see its one line. They see a table of
docs/tables as a link, which is a paragraph; on the site the table follows it.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

PART = re.compile(r"^```\{generated\} (\S+)\n(.*\n)*?```\n", flags=re.MULTILINE)
ANCHOR = re.compile(r'^(#+) <a id="([^"]+)"></a>', flags=re.MULTILINE)
ROW = re.compile(r'^\| <a id="([^"]+)"></a>\[([^\]]+)\]\([^)]+\)', flags=re.MULTILINE)
"""A row that leads to a file; the section of the same name is in a generated part."""
NUMBER = re.compile(r"[-+]?\d[^,;]*$")
LINKED = re.compile(r"^\[[^\]]+\]\((tables/[\w-]+\.csv)\)$", flags=re.MULTILINE)

CHILDREN = {  # pages below a page that GitHub's readers see without a list of them
    "docs/algorithms": "algorithms/*",
    "docs/design-decisions": "design/*",
    "docs/notebooks": "../notebooks/*",
}


def expand(text: str) -> str:
    """Return page *text* with its generated parts and tables, and rows that lead to their sections."""
    text = LINKED.sub(lambda found: f"{found[0]}\n\n{_table(found[1])}", text)
    return ROW.sub(r"| [\2](#\1)", PART.sub(lambda found: generated(found[1]), text))


def _table(name: str) -> str:
    """Return the CSV file *name* of this directory as Markdown, with columns of numbers to the right."""
    with (Path(__file__).parents[1] / name).open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    sides = ["---:" if all(NUMBER.match(cell) for cell in column) else "---" for column in zip(*rows, strict=True)]
    lines = [head, sides, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@functools.cache
def generated(name: str) -> str:
    """Return the part *name*: commands, papers, python, algorithms, workloads, experiment or topology."""
    from support import commands, python_api, schema_tables

    from experiments.papers.frame.page import details

    makers: dict[str, Callable[[], str]] = {"commands": commands.page, "papers": details, "python": python_api.page}
    return makers.get(name, lambda: schema_tables.tables(name))()


def _read(app: Any, docname: str, source: list[str]) -> None:
    if app.env.doc2path(docname).suffix == ".md":
        for table in LINKED.findall(source[0]):
            app.env.note_dependency(f"docs/{table}")
        source[0] = ANCHOR.sub(r"(\2)=\n\1 ", expand(source[0]))
    children = CHILDREN.get(docname, "")
    if children and any(
        app.env.doc2path(docname).parent.glob(f"{children}.{'ipynb' if 'notebooks' in children else 'md'}")
    ):
        source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{children}\n```\n"


def _spread(app: Any, env: Any, docnames: list[str]) -> None:
    """Spread the pages that compute evenly over the others, so that parallel readers have equal shares."""
    slow = [name for name in docnames if "file_format: mystnb" in Path(env.doc2path(name)).read_text(encoding="utf-8")]
    places = {name: (at + 0.5) / len(slow) for at, name in enumerate(slow)}
    others = [name for name in docnames if name not in places]
    places |= {name: at / len(others) for at, name in enumerate(others)}
    docnames.sort(key=places.__getitem__)


def setup(app: Any) -> dict[str, bool]:
    app.connect("env-before-read-docs", _spread)
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
