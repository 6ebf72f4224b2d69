"""The options of the sockets backend, all checked before anything starts."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from simcluster.documents.limits import MOST_WHOLE
from simcluster.documents.values import Flag, only, whole
from simcluster.documents.yaml import describe
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.fault_plans.kinds import DEAD_S
from simcluster.job import ClusterJob
from simcluster.process.installed import install_extra
from simcluster.process.starting import way_to_start
from simcluster.web.requests import is_loopback
from simcluster_backends.common.options import NodeOptions, RestartCount, options_of, seconds
from simcluster_backends.sockets.launcher.faults import check_faults
from simcluster_backends.sockets.launcher.logs import TMUX
from simcluster_backends.sockets.net.addresses import is_wildcard, parse_endpoint
from simcluster_backends.sockets.net.tls import COORDINATOR, LAUNCHER, check_files, read_tls
from simcluster_backends.sockets.wire.frame import BODY_LIMIT_BYTES
from simcluster_backends.sockets.wire.handshake import NAME_LIMIT_BYTES
from simcluster_backends.sockets.wire.keys import OPEN_KEY, generate_key, key_of, read_key, read_token

CONFIG_LIMIT_BYTES = 16 * 1024**2
NEEDED = ("fastapi", "uvicorn", "prometheus_client")
IN_CLEAR = "--tls FOLDER, an address on loopback, or --plain-http: anyone on the path could read the token"

MOST_DEAD_S = 90.0
"""The limit on `dead_s`, because peers wait that long for a silent node."""

BACKEND = "sockets backend"

Text = Annotated[str, only(lambda value: isinstance(value, str), "text", {"type": "string"})]
MaybeText = Annotated[str | None, only(lambda value: isinstance(value, str), "text, or nothing", {"type": "string"})]
KEY_VALUES = only(
    lambda value: isinstance(value, (list, tuple)) and all(isinstance(one, str) and "=" in one for one in value),
    "a list of KEY=VALUE, as ssh's -o takes them",
    {"type": "array", "items": {"type": "string"}},
)


@dataclass(frozen=True, kw_only=True)
class SocketOptions(NodeOptions):
    """The `options` of a ClusterJob on sockets.

    The launcher listens at *rendezvous*. Nodes started by hand also need the key in *key_file*.
    While a node reports that it is preparing its part, *start_s* starts again, for at most *loop_s*
    more. A frame has at most *body_limit_bytes*; larger messages travel in parts. The run begins
    when *min_workers* nodes are connected, including rank 0; the others join late. Nodes on other
    machines are started by *ssh*, with *ssh_config* as its -F option and *ssh_options* as its -o
    options. *tmux* shows the output of all nodes.

    A lost run restarts up to *max_restarts* times. A node that is lost without a planned fault is
    started again while the others run, up to *revivals* times in all. With *order*, nodes record
    the order of events, so that the run can be replayed. The run reports to a *coordinator*:
    "host:port" starts one for this run, a URL names an existing one. With *tls*, a directory of
    certificates, connections are encrypted, and the certificates decide which nodes may join. The
    token leaves this machine unencrypted only with *plain_http*.
    """

    rendezvous: Text = "127.0.0.1:0"
    key_file: MaybeText = None
    dead_s: Annotated[float, seconds(MOST_DEAD_S)] = DEAD_S
    min_workers: Annotated[int | None, whole(-MOST_WHOLE, MOST_WHOLE, "a whole number, or nothing: all")] = None
    body_limit_bytes: Annotated[int, whole(1, BODY_LIMIT_BYTES)] = BODY_LIMIT_BYTES
    uvloop: Annotated[bool | None, Flag.__metadata__[0]] = None
    ssh: Flag = True
    ssh_config: MaybeText = None
    ssh_options: Annotated[Sequence[str], KEY_VALUES] = ()
    tmux: Flag = False
    max_restarts: RestartCount = 0
    revivals: RestartCount = 0
    coordinator: MaybeText = None
    token_file: MaybeText = None
    tls: MaybeText = None
    plain_http: Flag = False
    order: Flag = True

    @property
    def has_secret(self) -> bool:
        """Whether nodes started by hand can join: with a key, a token or certificates."""
        return any(given is not None for given in (self.key_file, self.token_file, self.tls))

    @property
    def endpoint(self) -> tuple[str, int]:
        return parse_endpoint(self.rendezvous, "rendezvous")


def read_options(job: ClusterJob) -> tuple[SocketOptions, bytes]:
    """Return the options of *job* and the key of the run. Raise UsageError with all problems."""
    problems: list[Problem] = []
    options = options_of(SocketOptions, job.options, BACKEND, problems)
    workers = options.min_workers
    if workers is not None and not 1 <= workers <= max(1, len(job.names)):
        problems.append(Problem("min_workers", describe(workers), f"from 1 to {len(job.names)}, or nothing: all"))
    if options.tmux and shutil.which(TMUX) is None:
        problems.append(Problem("tmux", "no tmux on this machine", "tmux to be installed, or no --tmux"))
    _collect(problems, way_to_start)
    _collect(problems, lambda: _check_endpoint(options, any(job.remotes), problems))
    _check_nodes(job, options, problems)
    key = _key(job, options, problems)
    raise_all(problems)
    return options.until(job.time_s), key


def _key(job: ClusterJob, options: SocketOptions, problems: list[Problem]) -> bytes:
    """Return the key from the file or the token, or else OPEN_KEY with TLS, or else a new key."""
    key, token = None, None
    if options.key_file is not None:
        key = _collect(problems, lambda: read_key(Path(options.key_file or "")))
    if options.token_file is not None:
        token = _collect(problems, lambda: read_token(Path(options.token_file or "")))
    if options.coordinator is not None:
        if options.token_file is None:
            problems.append(Problem("token_file", "none", "the token that every call of the coordinator must have"))
        _collect(problems, lambda: check_coordinator(options.coordinator or "", options.tls, options.plain_http))
    if options.tls is not None:
        addresses = job.addresses or [None] * len(job.names)
        here = [name for name, address in zip(job.names, addresses, strict=False) if not address]
        missing = check_files(Path(options.tls), [LAUNCHER, *here])
        problems += missing
        if not missing:
            for name in (LAUNCHER, *here):
                _collect(problems, partial(read_tls, Path(options.tls), name))  # peers would refuse a wrong one
    if key is None and token is None and options.tls is not None:
        return OPEN_KEY  # the certificates decide
    return key or (key_of(token) if token is not None else generate_key())


def is_elsewhere(coordinator: str) -> bool:
    """Return whether *coordinator* is the URL of an existing one, not an address for a new one."""
    return "://" in coordinator


def check_coordinator(coordinator: str, tls: str | None, plain_http: bool, key: str = "coordinator") -> None:
    """Raise UsageError, naming *key*, if *coordinator* is invalid, or the token would not be encrypted."""
    if is_elsewhere(coordinator):
        from simcluster_backends.sockets.coordinator.client import Client

        Client(coordinator, "", tls=tls, plain_http=plain_http)
        return
    host, _ = parse_endpoint(coordinator, key)
    problems = []
    if absent := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        expected = f"it to be installed: {install_extra('api')}"
        problems.append(Problem(key, f"no {', '.join(absent)}", expected))
    if tls is not None:
        problems += check_files(Path(tls), [COORDINATOR])
    elif not plain_http and not is_loopback(host):
        problems.append(Problem(key, coordinator, IN_CLEAR))
    raise_all(problems)


def _check_endpoint(options: SocketOptions, elsewhere: bool, problems: list[Problem]) -> None:
    """Check the rendezvous. *elsewhere* means that nodes start by ssh, and get the key that way."""
    host, _ = options.endpoint
    if is_wildcard(host):
        problems.append(Problem("rendezvous", options.rendezvous, "one address, at which the nodes reach the launcher"))
    elif not is_loopback(host) and not options.has_secret and not elsewhere:
        expected = "key_file as well: off loopback no node is started without a key"
        problems.append(Problem("rendezvous", options.rendezvous, expected))


def _check_nodes(job: ClusterJob, options: SocketOptions, problems: list[Problem]) -> None:
    if not job.names:
        problems.append(Problem("names", "none", "at least one node"))
    for name in sorted({name for name in job.names if job.names.count(name) > 1}):
        problems.append(Problem("names", f"{name!r} twice", "a different name for every node"))
    for name in job.names:
        if len(name.encode()) > NAME_LIMIT_BYTES:
            problems.append(Problem("names", repr(name), f"at most {NAME_LIMIT_BYTES} bytes a name"))
    for key, given in (("addresses", job.addresses), ("remotes", job.remotes)):
        if given and len(given) != len(job.names):
            expected = f"one for each of the {len(job.names)} nodes, or none at all"
            problems.append(Problem(key, str(len(given)), expected))
    if any(job.addresses) and not options.has_secret:
        problems.append(Problem("key_file", "none", "the key file shared with the nodes started by hand"))
    size_bytes = len(job.config_json.encode())
    if size_bytes > CONFIG_LIMIT_BYTES:
        problems.append(Problem("config_json", f"{size_bytes} bytes", f"at most {CONFIG_LIMIT_BYTES}"))
    problems.extend(check_faults(job))


def _collect(problems: list[Problem], check: Callable[[], Any]) -> Any:
    try:
        return check()
    except UsageError as error:
        problems.extend(error.problems)
        return None
