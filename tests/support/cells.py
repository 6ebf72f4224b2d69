"""A notebook's cells: text run in one namespace, with a source that only linecache knows, as IPython keeps it."""

from __future__ import annotations

import itertools
import linecache
from typing import Any

_numbers = itertools.count(1)


class Cells:
    """A notebook; its names are its attributes."""

    def __init__(self, *texts: str) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        for text in texts:
            self.run(text)

    def run(self, text: str) -> Cells:
        file = f"<cell {next(_numbers)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec", dont_inherit=True), self.names)
        return self

    def __getattr__(self, name: str) -> Any:
        return self.names[name]
