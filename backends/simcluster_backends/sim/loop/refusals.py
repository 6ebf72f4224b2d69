"""The methods of an event loop that leave the simulated world, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from simcluster.errors import UsageError

_REFUSED = {
    "write `await node.compute(work, *args, cost=...)` for work": (
        "run_in_executor call_soon_threadsafe subprocess_exec subprocess_shell"
    ),
    "write `await node.send(...)` and `await node.recv(...)` for messages": (
        "create_connection create_server create_datagram_endpoint create_unix_connection create_unix_server "
        "getaddrinfo sock_connect sock_recv sock_sendall add_reader add_writer"
    ),
    "a run is ended from outside": "add_signal_handler",
}
REFUSED: Final = {name: instead for instead, names in _REFUSED.items() for name in names.split()}
"""Name of a loop's method -> what to do instead."""


def refusal(name: str, instead: str) -> Callable[..., NoReturn]:
    """Return a method *name* that raises UsageError."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise UsageError(f"{name} leaves the simulated world; {instead}")

    return refuse
