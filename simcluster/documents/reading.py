"""Collects what is wrong with a document while its parts are read, so that all of it is told at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from simcluster.documents.yaml import Document
from simcluster.errors import Problem, UsageError


class Reading:
    """One *document*, the *folder* that its relative paths start from, and the *problems* found so far."""

    def __init__(self, document: Document, folder: Path) -> None:
        self.document, self.folder = document, folder
        self.problems: list[Problem] = []

    def bad(self, path: tuple[Any, ...], expected: str, found: str | None = None, *, at_key: bool = False) -> None:
        """Notes that the value (or the key) at *path* is wrong: see `Document.problem`."""
        self.problems.append(self.document.problem(path, expected=expected, found=found, at_key=at_key))

    def collect(self, step: Callable[[], Any]) -> Any:
        """What *step* returns, or None, having noted what is wrong."""
        try:
            return step()
        except UsageError as error:
            self.problems.extend(error.problems)
            return None
