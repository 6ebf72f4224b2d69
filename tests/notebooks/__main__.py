"""Make notebooks/*.ipynb from notebooks/*.py, with outputs and figures: `make notebooks`.

`--check` (`make notebooks-check`) executes them again, and names every cell that shows something else than the stored
notebook. Outputs of cells with the tag `measured` depend on the machine, and only their kind is compared. A notebook
names the numeric libraries and kernels that made it; where others run, words must be the same and numbers close.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from simcluster.process.kernels import numerics
from tests.notebooks.close import close
from tests.notebooks.execution import execute, kernel
from tests.notebooks.outputs import draw, problems_of, shown, tidy
from tests.notebooks.source import SOURCES, made_from, read, sources


def make(path: Path, client: Any) -> Sequence[str]:
    """Make the notebook of *path*, and return what is wrong with it; it is written if nothing is."""
    import nbformat

    notebook = executed(path, client)
    draw(notebook)
    if not (problems := problems_of(notebook)):
        made_from(path).write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    return problems


def check(path: Path, client: Any) -> list[str]:
    """Return the differences between the stored notebook of *path* and what it shows now."""
    import nbformat

    if not made_from(path).is_file():
        return ["not made"]
    stored = nbformat.read(made_from(path), 4)
    if sources(stored) != sources(read(path)):
        return ["other sources"]
    return [*problems_of(stored), *differences(stored, executed(path, client))]


def executed(path: Path, client: Any) -> Any:
    """Return the notebook of *path* with its outputs, figures still as data."""
    notebook = read(path)
    with TemporaryDirectory() as folder:
        execute(client, notebook, Path(folder))
    tidy(notebook)
    notebook.metadata["simcluster"] = {"numerics": numerics()}
    return notebook


def differences(stored: Any, notebook: Any) -> Iterator[str]:
    """Yield, for each cell that shows something else, its id and the lines that differ."""
    exact = stored.metadata.get("simcluster") == notebook.metadata.get("simcluster")
    for old, new in zip(stored.cells, notebook.cells, strict=True):
        if old.cell_type == "code" and (was := shown(old)) != (now := shown(new)) and (exact or not close(old, new)):
            texts = ("\n".join(map(str, parts)).splitlines() for parts in (was, now))
            yield "\n    ".join([f"{old.id} differs", *difflib.unified_diff(*texts, "stored", "now", lineterm="", n=0)])


def main(arguments: Sequence[str]) -> int:
    """Make or check the notebooks named in *arguments*, by default all. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.notebooks", description=__doc__)
    parser.add_argument("--check", action="store_true", help="execute again and compare")
    parser.add_argument("names", nargs="*", metavar="NAME", help="for example `straggler`; by default all")
    given = parser.parse_args(arguments)
    chosen = [path for path in SOURCES if not given.names or path.stem in given.names]
    if unknown := set(given.names) - {path.stem for path in chosen}:
        parser.error(f"unknown notebook: {', '.join(sorted(unknown))}")
    from nbclient.exceptions import CellExecutionError

    bad = 0
    with kernel() as client:
        for path in chosen:
            began_s = time.monotonic()
            try:
                found = (check if given.check else make)(path, client)
            except CellExecutionError as error:
                found = [str(error)]
            bad += bool(found)
            print(f"{path.stem}: {'; '.join(found) or 'ok'} ({time.monotonic() - began_s:.0f} s)", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
