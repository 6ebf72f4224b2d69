"""The options of the sockets backend, all checked before anything starts."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

from simcluster.documents.yaml import describe
from simcluster.errors import Problem, UsageError, nearest, raise_all
from simcluster.experiment.job import ClusterJob
from simcluster.fault_plans.kinds import DEAD_S, LIMITS_S
from simcluster.process.installed import install_extra
from simcluster.process.starting import way_to_start
from simcluster.web.requests import is_loopback
from simcluster_backends.common.inbox import INBOX_BYTES
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
"""Most that dead_s may be: peers wait for a silent node."""

GRACE_S = 30.0
"""Time that an algorithm may take to end after its time is up: real clocks differ, and it may clean up."""


@dataclass(frozen=True)
class Options:
    """The `options` of a ClusterJob on sockets.

    The launcher listens at *rendezvous*; nodes started by hand need the key in *key_file* too. A node is dead after
    *dead_s* without a heartbeat. A run ends in NeverFinished if its start takes longer than *start_s*, counted
    again while a node reports to be at work on its part, for *loop_s* more at most; if for *stuck_s* every node waits
    and nothing moves; if for *idle_s* no work is done and nothing recorded; if one node's event loop does not turn for
    *loop_s*; or if an algorithm has not ended after *limit_s*, by default GRACE_S after the experiment's `stop.time`,
    if set.
    A node buffers *inbox_bytes* from one peer before its algorithm has received them; a frame holds at most
    *body_limit_bytes*, and larger messages travel in parts.
    The run begins when *min_workers* nodes are connected, rank 0 among them; the others join late.
    Nodes elsewhere are started by *ssh*, with *ssh_config* as its -F and *ssh_options* as its -o;
    *tmux* shows the output of all nodes. A lost run restarts up to *max_restarts* times.
    A node that is lost against the plan is started again while the others run, up to *revivals* times in all.
    With *order*, nodes record the order of events, so that the run can be replayed. *portable* selects kernels that
    every x86-64 machine has.
    The run reports to a *coordinator*: at "host:port" one made for this run, or an existing one at "http://...".
    With *tls*, a directory of certificates, connections are encrypted and the certificates decide which nodes may join.
    The token leaves this machine unencrypted only with *plain_http*.
    """

    rendezvous: str = "127.0.0.1:0"
    key_file: str | None = None
    heartbeat_s: float = 0.5
    dead_s: float = DEAD_S
    start_s: float = 60.0
    min_workers: int | None = None
    stuck_s: float = 30.0
    idle_s: float = 1800.0
    loop_s: float = 300.0
    limit_s: float | None = None
    inbox_bytes: int = INBOX_BYTES
    body_limit_bytes: int = BODY_LIMIT_BYTES
    uvloop: bool | None = None
    ssh: bool = True
    ssh_config: str | None = None
    ssh_options: tuple[str, ...] = ()
    tmux: bool = False
    max_restarts: int = 0
    revivals: int = 0
    coordinator: str | None = None
    token_file: str | None = None
    tls: str | None = None
    plain_http: bool = False
    order: bool = True
    portable: bool = False

    @property
    def has_secret(self) -> bool:
        """Whether nodes started by hand can have the secret to join."""
        return any(given is not None for given in (self.key_file, self.token_file, self.tls))

    @property
    def endpoint(self) -> tuple[str, int]:
        return parse_endpoint(self.rendezvous, "rendezvous")


_TIMES = ("heartbeat_s", "start_s", "stuck_s", "idle_s", "loop_s", "limit_s")
POSITIVE = dict.fromkeys(_TIMES, LIMITS_S[1]) | {
    "dead_s": MOST_DEAD_S,
    "inbox_bytes": 2**50,
    "body_limit_bytes": BODY_LIMIT_BYTES,
}
"""Option -> maximum; all must be above 0."""

MOST_RESTARTS = 1_000_000


def read_options(job: ClusterJob) -> tuple[Options, bytes]:
    """Return the options of *job* and the key of the run. Raise UsageError with all problems."""
    problems: list[Problem] = []
    options = _read(job.options, problems)
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
    if options.limit_s is None and job.time_s is not None:
        options = replace(options, limit_s=job.time_s + GRACE_S)
    return options, key


def check_options(given: Mapping[str, Any]) -> None:
    """Raise UsageError listing every option that is invalid for any job."""
    problems: list[Problem] = []
    _read(given, problems)
    raise_all(problems)


def _read(given: Mapping[str, Any], problems: list[Problem]) -> Options:
    """Return the options that are *given*; add what is wrong with them, whatever the job, to *problems*."""
    options = Options(**_known(given, problems))
    for name, most in POSITIVE.items():
        value = getattr(options, name)
        if value is not None and not 0 < value <= most:
            expected = f"more than 0 and at most {most:.15g}{' s' * name.endswith('_s')}"
            problems.append(Problem(name, describe(value), expected))
    least_s = 2 * options.heartbeat_s
    if 0 < options.dead_s <= MOST_DEAD_S and options.dead_s < least_s:
        problems.append(Problem("dead_s", repr(options.dead_s), f"at least two heartbeats, {least_s:g}"))
    for name in ("max_restarts", "revivals"):
        if not 0 <= (count := getattr(options, name)) <= MOST_RESTARTS:
            problems.append(Problem(name, describe(count), f"0 or more, and at most {MOST_RESTARTS}"))
    for option in options.ssh_options:
        if not isinstance(option, str) or "=" not in option:
            problems.append(Problem("ssh_options", repr(option), "KEY=VALUE, as ssh's -o takes it"))
    return options


def _key(job: ClusterJob, options: Options, problems: list[Problem]) -> bytes:
    """Return the key of the key file, else one derived from the token, else a new one."""
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
    """Whether *coordinator* is the URL of an existing one, not an address at which to make one."""
    return "://" in coordinator


def check_coordinator(coordinator: str, tls: str | None, plain_http: bool, key: str = "coordinator") -> None:
    """Raise UsageError, naming *key*, if *coordinator* is invalid, or would send the token unencrypted without
    *plain_http*.
    """
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


def _known(given: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """Return the options that exist and have the right type; add the others to *problems*."""
    types: dict[str, tuple[type, ...]] = {
        **dict.fromkeys(("key_file", "token_file", "tls", "ssh_config"), (str, Path, NoneType)),
        **dict.fromkeys(("ssh", "order", "portable", "tmux", "plain_http"), (bool,)),
        **dict.fromkeys(("inbox_bytes", "body_limit_bytes", "max_restarts"), (int,)),
        "rendezvous": (str,),
        "coordinator": (str, NoneType),
        "limit_s": (int, float, NoneType),
        "min_workers": (int, NoneType),
        "uvloop": (bool, NoneType),
        "ssh_options": (list, tuple),
    }
    names = [field.name for field in fields(Options)]
    known: dict[str, Any] = {}
    for name, value in given.items():
        expected = types.get(name, (int, float))
        if name not in names:
            problems.append(Problem(name, "unknown option of the sockets backend", nearest(name, names)))
        elif not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected):
            words = " or ".join("nothing" if kind is NoneType else kind.__name__ for kind in expected)
            problems.append(Problem(name, describe(value), words))
        else:
            known[name] = str(value) if isinstance(value, Path) else value
    return known


def _check_endpoint(options: Options, elsewhere: bool, problems: list[Problem]) -> None:
    """Check the rendezvous. Nodes *elsewhere* get their key from the launcher."""
    host, _ = options.endpoint
    if is_wildcard(host):
        problems.append(Problem("rendezvous", options.rendezvous, "one address, at which the nodes reach the launcher"))
    elif not is_loopback(host) and not options.has_secret and not elsewhere:
        expected = "key_file as well: off loopback no node is started without a key"
        problems.append(Problem("rendezvous", options.rendezvous, expected))


def _check_nodes(job: ClusterJob, options: Options, problems: list[Problem]) -> None:
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
