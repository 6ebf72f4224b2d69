"""Reads how the processes of real nodes are started: by which command, and how many on each machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from simcluster.documents.fields import Fields

LAUNCH_KEYS = ("python", "command", "nproc_per_node")
MOST_PROCESSES = 256

# What is started must never look like an option of whatever starts it.
_WORD = re.compile(r"[^\x00-\x1f\x7f-][^\x00-\x1f\x7f]{0,1023}")
_ARGUMENT = re.compile(r"[^\x00-\x1f\x7f]{0,1024}")


class Launch(NamedTuple):
    """*command* is what `simcluster` is called there, word by word; () and None where nothing is said."""

    command: tuple[str, ...] = ()
    nproc_per_node: int | None = None


def read_launch(fields: Fields) -> Launch:
    """What the node, or the block for all nodes, that *fields* are of says."""
    python = fields.text("python", _WORD, "a Python there, by name or path, in which simcluster is installed")
    command = _read_command(fields)
    if fields.has("python") and fields.has("command"):
        fields.problem("python", expected="python or command, not both: a command has its own")
    if python is not None:
        command = (python, "-m", "simcluster")
    return Launch(command, fields.whole("nproc_per_node", 1, MOST_PROCESSES))


def _read_command(fields: Fields) -> tuple[str, ...]:
    if not fields.has("command"):
        return ()
    words = fields.get("command")
    fits = isinstance(words, Sequence) and not isinstance(words, str) and bool(words)
    fits = fits and all(isinstance(word, str) and _ARGUMENT.fullmatch(word) for word in words)
    if fits and _WORD.fullmatch(words[0]):
        return tuple(words)
    fields.problem("command", expected="a list of words that start simcluster there: [uv, run, simcluster]")
    return ()
