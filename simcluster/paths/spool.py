"""Storage for bytes that may not fit into memory: beyond a size, an unnamed temporary file."""

from __future__ import annotations

import copy
import tempfile
import threading
import weakref
from collections.abc import Iterator
from typing import Self

from simcluster.errors import RunError

IN_MEMORY_BYTES = 16 * 2**20
"""A spool moves to a file when it grows beyond this size."""

PIECE_BYTES = 2**20


class Spool:
    """Bytes that several threads can write and read in any order; unwritten bytes are 0.

    The temporary file is in Python's directory for these (TMPDIR), and is removed with the spool or
    the process. Raise RunError if it cannot be written.
    """

    def __init__(self, content: bytes = b"") -> None:
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115 - see finalize
        self._lock = threading.Lock()
        # `first` makes twins that share the file and the lock: close the file when the last twin is
        # gone.
        weakref.finalize(self._lock, self._file.close)
        self.size_bytes = 0
        self.write(0, content)

    def write(self, start: int, content: bytes | memoryview) -> None:
        """Write *content* at the offset *start*."""
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
        """Write *content* at the end."""
        self.write(self.size_bytes, content)

    def read_into(self, start: int, target: memoryview) -> None:
        """Fill *target* with the bytes from the offset *start* on."""
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
        """Return a spool of the first *size_bytes*, which shares the bytes with this one."""
        twin = copy.copy(self)
        twin.size_bytes = size_bytes
        return twin

    def pieces(self, most_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        """Yield all bytes in order, in pieces of at most *most_bytes*."""
        for start in range(0, self.size_bytes, most_bytes):
            yield self.read(start, min(start + most_bytes, self.size_bytes))
