"""The latency of a link: packets between TUN devices in two namespaces are relayed after a delay.

Kernels have netem for this, but not all are built with it.

`python -m tools.netns.relay PID_A PID_B DEVICE LATENCY_S` makes both devices, prints "ready", and
relays packets until it is killed.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
# Linux constants that Python does not define: see linux/if_tun.h and linux/prctl.h.
TUNSETIFF = 0x400454CA
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000
PACKET_BYTES = 65536
PR_SET_TIMERSLACK = 29
DOWN_S = 0.01


@contextmanager
def relay(pid_a: int, pid_b: int, device: str, latency_s: float) -> Iterator[None]:
    """Join two processes' namespaces by *device* with *latency_s* until the end of the block."""
    command = [sys.executable, "-m", "tools.netns.relay", str(pid_a), str(pid_b), device, repr(latency_s)]
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "chrt", "--fifo", "2", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            _, words = process.communicate()
            raise RuntimeError(f"a link with latency: {words.decode().strip()}")
        yield
    finally:
        process.kill()
        process.communicate()


def open_device(pid: int, device: str) -> int:
    """Create a TUN *device* in the network namespace of *pid*, and return its file descriptor.

    This process moves into that namespace.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{pid}/ns/net") as namespace:
        if libc.setns(namespace.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TUN | IFF_NO_PI))
    return descriptor


def run(a: int, b: int, latency_s: float) -> None:
    """Relay packets between *a* and *b* forever, each *latency_s* after its arrival."""
    waiting: dict[int, deque[tuple[float, bytes]]] = {a: deque(), b: deque()}
    other = {a: b, b: a}
    while True:
        due_s = min((queue[0][0] for queue in waiting.values() if queue), default=None)
        left_s = None if due_s is None else max(0.0, due_s - time.perf_counter())
        readable, _, _ = select.select([a, b], [], [], left_s)
        now_s = time.perf_counter()
        for descriptor in readable:
            for packet in _all_packets(descriptor):
                waiting[descriptor].append((now_s + latency_s, packet))
        for descriptor, queue in waiting.items():
            while queue and queue[0][0] <= now_s:
                with suppress(OSError):  # like a cut cable, a device that is down loses packets
                    os.write(other[descriptor], queue.popleft()[1])


def _all_packets(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(descriptor, PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:  # the device is down
            time.sleep(DOWN_S)
            return


def main() -> None:
    pid_a, pid_b, device, latency_s = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)  # the kernel must not delay timers to save power
    a = open_device(int(pid_a), device)
    b = open_device(int(pid_b), device)
    # A garbage collection would delay packets.
    gc.freeze()
    gc.disable()
    print("ready", flush=True)
    run(a, b, float(latency_s))


if __name__ == "__main__":
    main()
