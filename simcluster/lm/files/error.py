"""The error for a model file that cannot be used."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from simcluster.errors import Problem, UsageError

MALFORMED = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, struct.error)
"""Exceptions that code may raise when it reads a malformed file."""

MOST_SHOWN = 60
"""Limit on the characters of a value in a message."""


class ModelFileError(UsageError):
    """A model file that is missing, malformed, or of an unsupported kind."""

    def __init__(self, file: object, key: str, found: str, expected: str) -> None:
        printable = "".join(filter(str.isprintable, key))  # the key may come from the file
        super().__init__(Problem(printable, found, expected, file=str(file)))


def shown(value: object) -> str:
    """Return *value*, which comes from a file, shortened to MOST_SHOWN characters for a message."""
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def reason(error: BaseException) -> str:
    """Return the reason in *error* why a file cannot be used."""
    if isinstance(error, KeyError):
        return f"no {error.args[0]}"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


@contextmanager
def refusing(file: object, key: str, expected: str = "") -> Iterator[None]:
    """Turn errors of the block that show a malformed *file* into a ModelFileError about *key*."""
    try:
        yield
    except MALFORMED as error:
        raise ModelFileError(file, key, reason(error), expected) from None
