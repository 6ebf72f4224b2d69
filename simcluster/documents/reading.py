"""Collect the problems of a document while reading its parts, to report them all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from simcluster.documents.models import WrongValue, tried
from simcluster.documents.yaml import MISSING, Document
from simcluster.documents.yaml_build import KeyPath
from simcluster.errors import Problem, UsageError
from simcluster.spelling import nearest
from simcluster.units import UnitError

T = TypeVar("T")


class DocumentReading:
    """A *document*, with the *folder* of its relative paths and the *problems* found so far."""

    def __init__(self, document: Document, folder: Path | None = None) -> None:
        self.document = document
        self.folder = folder or document.folder_of(())
        self.problems: list[Problem] = []
        self.home: Callable[[], Path] | None = None
        """A function that returns the directory for captured sources; None if there will be none."""
        self.resumes = False
        """Whether a checkpoint has the weights that the run begins with, so that no file is read."""

    def folder_of(self, path: KeyPath) -> Path:
        """Return the base of the relative file path at *path* in the document.

        It is the directory of the document, or the working directory for a value from a command.
        """
        return Path.cwd() if self.document.origin_of(path) is not None else self.folder

    def read(self, parse: Callable[[Any], T], path: KeyPath) -> T | None:
        """Return *parse*'s result for the value at *path*; if it fails, collect its problems and
        return None.
        """
        found: list[Any] = []
        made = tried(found, parse, self.document.get(path), *path)
        for detail in found:
            wrong = detail["ctx"]["error"]
            self.bad(detail["loc"], wrong.expected, wrong.found, at_key=getattr(wrong, "at_key", False))
        return made

    def bad(self, path: KeyPath, expected: str, found: str | None = None, *, at_key: bool = False) -> None:
        """Add a problem of the value (or the key) at *path*; see `Document.problem`."""
        self.problems.append(self.document.problem(path, expected=expected, found=found, at_key=at_key))

    def collect(self, step: Callable[[], Any]) -> Any:
        """Return the result of *step*; on UsageError, collect its problems and return None."""
        try:
            return step()
        except UsageError as error:
            self.problems.extend(error.problems)
            return None


class Fields:
    """The mapping at *path* of a document, with only the keys *known* allowed.

    Use it instead of a `Block` if the meaning of a key depends on others. It adds to *problems*.
    """

    def __init__(self, document: Document, path: KeyPath, known: Sequence[str], problems: list[Problem]) -> None:
        self.document = document
        self.path = path
        self.problems = problems
        found = document.get(path)
        self.is_mapping = isinstance(found, dict)
        self.data: Mapping[str, Any] = found if isinstance(found, dict) else {}
        if not self.is_mapping:
            self.problem(expected=f"a mapping with {', '.join(known)}")
        for key in self.data:
            if key not in known:
                self.unknown(key, known)

    def problem(self, *key: str, expected: str, found: str | None = None, at_key: bool = False) -> None:
        self.problems.append(self.document.problem((*self.path, *key), expected=expected, found=found, at_key=at_key))

    def unknown(self, key: str, known: Iterable[str]) -> None:
        self.problem(key, found="unknown key", expected=nearest(key, known), at_key=True)

    def get(self, key: str) -> Any:
        """Return the value of *key*, or MISSING if it is absent or has no value."""
        value = self.data.get(key)
        return MISSING if value is None else value

    def has(self, key: str) -> bool:
        return self.get(key) is not MISSING

    def value(self, key: str, check: Callable[[object], T]) -> T | None:
        """Return the value of *key*, converted by *check*; None if it is absent or wrong.

        A wrong value adds a problem.
        """
        if not self.has(key):
            return None
        try:
            return check(self.get(key))
        except (WrongValue, UnitError) as error:
            self.problem(key, found=error.found, expected=error.expected)
            return None
