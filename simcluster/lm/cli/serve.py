"""The command `simcluster serve`: a language model on a cluster, with an API and a chat page."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from typer import Option

from simcluster.backend import real_nodes
from simcluster.cli.terminal.complete import one_of
from simcluster.cli.terminal.options import AllowHost, ServeTls, TopologyFile, named
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.lm.cli.gaps import print_format, print_gaps
from simcluster.lm.cli.options import (
    ENGINE_NAMES,
    MODELS,
    SERVED_CHUNK_TOKENS,
    ChunkTokens,
    Engine,
    Guesses,
    PlacementName,
    PolicyName,
    Weights,
)
from simcluster.process.installed import OF_PAGES, install_extra
from simcluster.process.loading import torch_loads
from simcluster.process.platforms import need_unix
from simcluster.web.requests import is_loopback

if TYPE_CHECKING:
    from simcluster.lm.engine.serve_replicas import Policy
    from simcluster.web.requests import App

MOST_QUEUE = 100_000

SPARE_CONNECTIONS = 1024
"""Number of connections that are accepted beyond the queue.

Their requests get an error in the API's shape instead of a refused connection.
"""


ModelName = Annotated[
    str,
    named(
        "NAME|FILE|RUN",
        "smollm2, a name of `list models`, a .gguf or .safetensors file, or the folder of a run that trained one.",
        one_of(MODELS[0]),
    ),
]
BackendName = Annotated[
    str, named("NAME", "sim (real tokens at the predicted pace) or sockets.", one_of("sim", "sockets"))
]
CacheSize = Annotated[str, Option(metavar="SIZE", help="The most cache of keys and values on each node.")]
Queue = Annotated[int, Option(metavar="N", help="The most requests at once; further ones get 503.")]
Restarts = Annotated[int, Option(metavar="N", help="On sockets: the most restarts after a node is lost.")]
Host = Annotated[str, Option(metavar="HOST", help="The address to listen on.")]
Port = Annotated[int, Option(metavar="N", min=0, max=65535, help="The port; 0 takes any free one.")]
TokenFile = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="Ask for this token (api_key), and for a printed link in a browser; required off loopback. "
        "Any file from `simcluster key`.",
    ),
]
PlainHttp = Annotated[bool, Option("--plain-http", help="Let token and answers cross a network unencrypted.")]


def serve(
    topology: TopologyFile,
    model: ModelName,
    backend: BackendName = "sim",
    placement: PlacementName = "auto",
    policy: PolicyName = None,
    weights: Weights = None,
    engine: Engine = ENGINE_NAMES[0],
    guesses: Guesses = 0,
    cache: CacheSize = "1 GB",
    chunk_tokens: ChunkTokens = SERVED_CHUNK_TOKENS,
    queue: Queue = 256,
    restarts: Restarts = 10,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    token_file: TokenFile = None,
    allow_host: AllowHost = None,
    tls: ServeTls = None,
    plain_http: PlainHttp = False,
) -> None:
    """Serve a language model spread over a cluster: OpenAI's API at /v1, /metrics, and a chat page at /."""
    need_unix("the server")
    # Check this before torch is loaded, which takes seconds.
    if absent := [name for name in OF_PAGES if importlib.util.find_spec(name) is None]:
        raise UsageError("serve", f"no {', '.join(absent)}", f"it to be installed: {install_extra('api')}")
    names = allow_host or []
    token = _token(token_file, all(map(is_loopback, [host, *names])), queue, restarts)
    with torch_loads():
        from simcluster.lm.serving.desk.request_broker import RequestBroker
        from simcluster.lm.serving.start_server import ServingOptions, hosted
        from simcluster.lm.serving.start_server import host as run_nodes
        from simcluster.lm.serving.web.app import make_app
        from simcluster.lm.serving.web.served_model import Site
        from simcluster.topology import load
        from simcluster.web.login import Login, invitation

    wanted = ServingOptions(
        model, backend, placement, weights, cast("Policy | None", policy),
        chunk_tokens, guesses, engine, _size(cache),
    )  # fmt: skip
    cluster = load(topology)
    setup, served = hosted(wanted, cluster)
    site = Site(RequestBroker(queue), served)
    entrance = Login(lambda code: print(invitation(server.page_url, code), flush=True)) if token is not None else None

    def app_for(hosts: Collection[str]) -> App:
        return make_app(site, hosts, token, entrance, is_tls=tls is not None)

    endpoint = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    certificates = str(tls) if tls is not None else None
    server = real_nodes().serve_pages(
        endpoint, app_for, names, certificates, plain_http, "serve", queue + SPARE_CONNECTIONS
    )
    parts = ", ".join(f"{one.node} ({one.layers[1] - one.layers[0]} layers)" for one in site.placement.parts)
    unused = f"; no part: {', '.join(site.placement.unused)}" if site.placement.unused else ""
    where = f"{site.placement.kind}: {parts}{unused}"
    print(f"{served.name} at {server.page_url}/v1, chat at {server.page_url}/; {where}", flush=True)
    print_format(cluster, setup.precision, backend)
    print_gaps(cluster, [part.node for part in site.placement.parts], backend)
    server.start()
    if entrance is not None:
        entrance.renew()
    try:
        run_nodes(setup, cluster, site.front, backend, restarts, lambda line: print(line, file=sys.stderr, flush=True))
    finally:
        server.close()


def _token(file: Path | None, on_loopback: bool, queue: int, restarts: int) -> str | None:
    """Return the token in *file*, or None if *file* is None.

    Raise UsageError if *file* is None but a token is needed, or if a number is out of range.
    """
    problems = []
    if file is None and not on_loopback:
        problems.append(Problem("--token-file", "none", "the token that every client off this machine must have"))
    if not 1 <= queue <= MOST_QUEUE:
        problems.append(Problem("--queue", str(queue), f"a number from 1 to {MOST_QUEUE}"))
    if restarts < 0:
        problems.append(Problem("--restarts", str(restarts), "0 or more"))
    raise_all(problems)
    return None if file is None else real_nodes().read_token(file)


def _size(text: str) -> int:
    from simcluster.units import UnitError, parse_size

    try:
        return parse_size(text)
    except UnitError as error:
        raise UsageError("--cache", error.found, error.expected) from None
