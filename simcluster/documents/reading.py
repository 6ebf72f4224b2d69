"""Collects the problems of a document while its parts are read, to report them all at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from simcluster.documents.models import tried
from simcluster.documents.yaml import Document
from simcluster.documents.yaml_build import KeyPath
from simcluster.errors import Problem, UsageError

T = TypeVar("T")


class Reading:
    """One *document*, the *folder* of its relative paths, and the *problems* found so far."""

    def __init__(self, document: Document, folder: Path | None = None) -> None:
        self.document, self.folder = document, folder or document.folder_of(())
        self.problems: list[Problem] = []

    def read(self, parse: Callable[[Any], T], path: KeyPath) -> T | None:
        """Return *parse*'s result for the value at *path*, or None after collecting its faults."""
        found: list[Any] = []
        made = tried(found, parse, self.document.get(path), *path)
        for detail in found:
            wrong = detail["ctx"]["error"]
            self.bad(detail["loc"], wrong.expected, wrong.found, at_key=getattr(wrong, "at_key", False))
        return made

    def bad(self, path: KeyPath, expected: str, found: str | None = None, *, at_key: bool = False) -> None:
        """Add the problem of the value (or the key) at *path*: see `Document.problem`."""
        self.problems.append(self.document.problem(path, expected=expected, found=found, at_key=at_key))

    def collect(self, step: Callable[[], Any]) -> Any:
        """Return the result of *step*, or None after collecting its problems."""
        try:
            return step()
        except UsageError as error:
            self.problems.extend(error.problems)
            return None
