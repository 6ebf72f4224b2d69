"""Operations that an asyncio transport lacks, on the socket below it.

Errors are ignored: the event loop reports a socket that is gone.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

NO_LINGER = struct.pack("ii", 1, 0)
"""The SO_LINGER option with which closing a socket sends a reset."""


def send_at_once(transport: asyncio.BaseTransport) -> None:
    """Let the kernel send data at once, without waiting for more (TCP_NODELAY)."""
    with suppress(OSError):  # some systems report here that the peer is already gone
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def write_now(descriptor: int, chunk: bytes | bytearray | memoryview) -> tuple[int, bool]:
    """Write to the socket without a copy; return the bytes written, and whether it was reset."""
    try:
        return os.write(descriptor, chunk), False
    except ConnectionResetError:  # the kernel reports it only once: the transport gets EPIPE
        return 0, True
    except OSError:  # the transport will report it
        return 0, False


def end_writing(descriptor: int) -> None:
    """Shut down the sending half, so that the peer sees the end of the stream."""
    _change(descriptor, lambda connected: connected.shutdown(socket.SHUT_WR))


def reset_at_close(descriptor: int) -> None:
    """Make the socket send a TCP reset when it is closed."""
    _change(descriptor, lambda connected: connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER))


def _change(descriptor: int, change: Callable[[socket.socket], object]) -> None:
    """Apply *change* to a duplicate of *descriptor*, because uvloop's sockets lack `shutdown`."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connected:
        change(connected)
