"""A node that finds its run through a coordinator: it registers, waits for a run, joins and leaves.

The node waits for the coordinator and the run, which may both start later than the node.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from simcluster_backends.sockets.coordinator.client import Client, NoAnswer
from simcluster_backends.sockets.net.addresses import listen_towards, parse_endpoint
from simcluster_backends.sockets.node import process
from simcluster_backends.sockets.wire.keys import key_of, read_key, read_token

GOODBYE = {"gone": True}
LEAST_WAIT_S, MOST_WAIT_S = 0.1, 1.0


def attend_with_files(
    name: str,
    url: str,
    token_file: Path,
    key_file: Path | None,
    listen: str | None,
    tls: str | None,
    patience_s: float,
    plain_http: bool = False,
) -> int:
    """Call `attend` with the arguments of a command line. Raise UsageError if they are invalid."""
    token = read_token(token_file)
    key = read_key(key_file) if key_file is not None else key_of(token)
    if listen is not None:
        parse_endpoint(listen, "listen")

    def take_part(rendezvous: str) -> int | None:
        left = threading.Event()
        here = listen_towards(listen or "", rendezvous)
        code = process.join(name, rendezvous, key, here, tls=tls, on_left=left.set)
        return None if left.is_set() else code

    client = Client(url, token, tls=tls, plain_http=plain_http)
    return attend(name, client, listen or "", take_part, patience_s=patience_s)


def attend(
    name: str,
    client: Client,
    listen: str,
    join: Callable[[str], int | None],
    *,
    patience_s: float,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Take part in the coordinator's next run that includes *name*; return the exit code.

    *join* is called with the rendezvous of each attempt of that run, and returns its exit code, or
    None if the node has left as ordered. The node then also leaves the coordinator. If it is asked
    to leave before a run includes it, the exit code is 0. Raise NoAnswer or RunError if there is no
    coordinator or no run for *patience_s*, and NotAllowed at once.
    """
    end_s, wait_s = now() + patience_s, LEAST_WAIT_S
    code: int | None = None
    epoch = -1
    leave = partial(client.post, f"/workers/{name}/leave", GOODBYE)
    while True:
        try:
            heard = client.post(f"/workers/{name}/heartbeat")
            if heard.get("leave"):
                leave()
                return code or 0
            run = _next_run(name, client, listen, heard["known"])
        except NoAnswer:
            if code is not None:
                return code  # the launcher has ended its own coordinator: the run is over
            if now() > end_s:
                raise
        else:
            if run is not None and run["epoch"] > epoch:
                epoch = run["epoch"]
                code = join(run["rendezvous"])
                if code is None:
                    with suppress(NoAnswer):
                        leave()
                    return 0
                continue
            if run is None and code is not None:
                leave()
                return code
            if code is None and now() > end_s:
                leave()
                raise NoAnswer(f"the coordinator at {client.url} had no run for {name} within {patience_s:g} s")
        sleep(wait_s)
        wait_s = min(2 * wait_s, MOST_WAIT_S)


def _next_run(name: str, client: Client, listen: str, known: bool) -> dict[str, Any] | None:
    """Return the active run that includes *name*, or None. Register *name* if it is not *known*."""
    if not known:
        client.post("/workers", {"name": name, "address": listen})
    answer = client.get("/training/ready", min_workers=1)
    run: dict[str, Any] | None = answer["run"]
    return None if run is None or name not in run["nodes"] else run | {"epoch": answer["epoch"]}
