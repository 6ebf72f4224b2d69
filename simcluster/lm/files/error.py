"""The error for a model's file that cannot be used."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from simcluster.errors import Problem, UsageError

MALFORMED = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, struct.error)
"""Exceptions that reading a malformed file may raise."""

MOST_SHOWN = 60
"""Limit on the characters of a value in a message."""


class ModelFileError(UsageError):
    """A file of a model that is missing, malformed, or of a kind that is not supported."""

    def __init__(self, file: object, key: str, found: str, expected: str) -> None:
        printable = "".join(filter(str.isprintable, key))  # it may come from the file
        super().__init__(Problem(printable, found, expected, file=str(file)))


def shown(value: object) -> str:
    """Return *value* from a file as a message has it: short."""
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def reason(error: BaseException) -> str:
    """Return what *error* says about a file."""
    if isinstance(error, KeyError):
        return f"no {error.args[0]}"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


@contextmanager
def refusing(file: object, key: str, expected: str = "") -> Iterator[None]:
    """Turn what a malformed *file* raises in the block into a ModelFileError about *key*."""
    try:
        yield
    except MALFORMED as error:
        raise ModelFileError(file, key, reason(error), expected) from None
