"""Bytes that may be larger than memory: kept there while they are few, then in a nameless temporary file."""

from __future__ import annotations

import copy
import tempfile
import threading
import weakref
from collections.abc import Iterator
from typing import Self

from simcluster.errors import RunError

IN_MEMORY_BYTES = 16 * 2**20
"""A spool moves to a file when it grows beyond this."""

PIECE_BYTES = 2**20


class Spool:
    """Bytes that are written and read in any order, by several threads; those never written are 0.

    The file is where Python puts temporary ones (TMPDIR), and goes with the spool or the process. Raises RunError if
    it cannot be written.
    """

    def __init__(self, content: bytes = b"") -> None:
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115 - it goes with this object
        self._lock = threading.Lock()
        weakref.finalize(self._lock, self._file.close)  # twins share both
        self.size_bytes = 0
        self.write(0, content)

    def write(self, start: int, content: bytes | memoryview) -> None:
        """Put *content* at *start*."""
        try:
            with self._lock:
                if start + len(content) > IN_MEMORY_BYTES:
                    self._file.rollover()
                self._file.seek(start)
                self._file.write(content)
                self.size_bytes = max(self.size_bytes, start + len(content))
        except OSError as error:
            where = f"{tempfile.gettempdir()}: {error.strerror}; set TMPDIR to a directory with more room"
            raise RunError(f"cannot keep {start + len(content)} bytes of weights in {where}") from error

    def append(self, content: bytes) -> None:
        """Put *content* after all others."""
        self.write(self.size_bytes, content)

    def read_into(self, start: int, target: memoryview) -> None:
        """Fill *target* with the bytes from *start* on."""
        with self._lock:
            self._file.seek(start)
            filled = 0
            while filled < len(target):
                count = self._file.readinto(target[filled:])
                assert count, "bytes that were written"
                filled += count

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from *start* to *stop*."""
        content = bytearray(stop - start)
        self.read_into(start, memoryview(content))
        return bytes(content)

    def first(self, size_bytes: int) -> Self:
        """Return the first *size_bytes*, not copied."""
        twin = copy.copy(self)
        twin.size_bytes = size_bytes
        return twin

    def pieces(self, most_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        """Yield all bytes in order, in pieces of at most *most_bytes*."""
        for start in range(0, self.size_bytes, most_bytes):
            yield self.read(start, min(start + most_bytes, self.size_bytes))
