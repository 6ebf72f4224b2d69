"""Read how the processes of real nodes are started: the command, and their number per machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, PlainValidator
from pydantic_core import InitErrorDetails

from simcluster.documents.models import Block, Wrong, fault
from simcluster.documents.values import text, whole

MOST_PROCESSES = 256

# The command must never look like an option of the program that starts it.
_WORD = re.compile(r"[^\x00-\x1f\x7f-][^\x00-\x1f\x7f]{0,1023}")
_ARGUMENT = re.compile(r"[^\x00-\x1f\x7f]{0,1024}")
_PYTHON = "a Python there, by name or path, in which simcluster is installed"


def _words(words: object) -> tuple[str, ...]:
    if isinstance(words, Sequence) and not isinstance(words, str) and words:
        fits = all(isinstance(word, str) and _ARGUMENT.fullmatch(word) for word in words)
        if fits and _WORD.fullmatch(words[0]):
            return tuple(words)
    raise Wrong("a list of words that start simcluster there: [uv, run, simcluster]")


class LaunchBlock(Block):
    """How the processes of a node are started, or the default for all nodes."""

    python: Annotated[str, text(_WORD, _PYTHON)] | None = None
    command: Annotated[tuple[str, ...], PlainValidator(_words)] = ()
    processes: Annotated[int, whole(1, MOST_PROCESSES)] | None = Field(None, alias="nproc_per_node")

    @property
    def words(self) -> tuple[str, ...]:
        """Return the command for `simcluster` there, word by word; empty by default."""
        return (self.python, "-m", "simcluster") if self.python is not None else self.command

    @classmethod
    def faults(cls, given: Mapping[str, Any]) -> Iterable[InitErrorDetails]:
        yield from super().faults(given)
        if "python" in given and "command" in given:
            yield fault("python", expected="python or command, not both: a command names its Python")


LAUNCH_KEYS = LaunchBlock.known.names
