"""The socket below one of asyncio's transports, for what those lack. The loop reports a socket that is gone."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

NO_LINGER = struct.pack("ii", 1, 0)
"""SO_LINGER of a socket that ends in a reset."""


def send_at_once(transport: asyncio.BaseTransport) -> None:
    """Keep the kernel from waiting for more to send."""
    with suppress(OSError):  # the peer may be gone again, which some systems report here
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def write_now(descriptor: int, chunk: bytes | bytearray | memoryview) -> tuple[int, bool]:
    """Let the kernel copy what it accepts now straight from *chunk*; return its length, and whether it broke."""
    try:
        return os.write(descriptor, chunk), False
    except ConnectionResetError:  # seen once: the transport gets a broken pipe
        return 0, True
    except OSError:  # the transport will report it
        return 0, False


def end_writing(descriptor: int) -> None:
    """Let the peer see an end."""
    _change(descriptor, lambda connected: connected.shutdown(socket.SHUT_WR))


def reset_at_close(descriptor: int) -> None:
    """Let the peer see a TCP reset when the socket is closed."""
    _change(descriptor, lambda connected: connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER))


def _change(descriptor: int, change: Callable[[socket.socket], object]) -> None:
    """Apply *change* to a duplicate: uvloop's sockets lack `shutdown`."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connected:
        change(connected)
