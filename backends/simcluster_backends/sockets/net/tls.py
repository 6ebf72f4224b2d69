"""Mutual TLS 1.3 between the nodes of a run and their launcher, with a private certificate
authority (CA).

Both ends present a certificate signed by the same CA. The certificate's subject alternative name
has the node's name as a URI, because node names are not host names. The handshake of wire.handshake
then compares this name with the name that the peer claims.
"""

from __future__ import annotations

import ssl
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simcluster.errors import Problem, UsageError

AUTHORITY = "ca"
LAUNCHER = "launcher"
COORDINATOR = "coordinator"
URI = "simcluster://node/"
RENEW = "a new one: remove this one and run `simcluster keys init`"
UNTOLD = (
    "before the handshake was done; the peer's log says why: likely only one side has --tls, or our certificate is of "
    "another authority, expired or missing"
)
"""The end of an error message. asyncio closes a refused connection before OpenSSL's alert is sent,
so the refused side can only guess the reason.
"""


class ClosedUnread(ConnectionResetError):
    """A connection that the peer closed after the TLS handshake, and before that of wire.handshake.

    Most likely the peer refuses this node's certificate: in TLS 1.3 the connecting side has
    finished the handshake before the other side verifies its certificate.
    """


MADE_BY = "a file made by `simcluster keys init`, which adds whatever the folder lacks"


def certificate_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.pem"


def key_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.key"


def names_in(certificate: dict[str, Any] | None) -> frozenset[str]:
    """Return the node names in a verified *certificate*."""
    alternative = (certificate or {}).get("subjectAltName", ())
    return frozenset(value.removeprefix(URI) for kind, value in alternative if kind == "URI" and value.startswith(URI))


def files_for(folder: Path, name: str) -> list[Path]:
    """Return the paths of the CA's certificate and of *name*'s certificate and key."""
    return [certificate_file(folder, AUTHORITY), certificate_file(folder, name), key_file(folder, name)]


def check_files(folder: Path, names: Iterable[str]) -> list[Problem]:
    """Return the problems of the files in *folder* that *names* need.

    A file may be missing, or a key may be readable by other users.
    """
    problems = []
    for path in dict.fromkeys(path for name in names for path in files_for(folder, name)):
        if not path.is_file():
            problems.append(Problem("tls", f"no {path}", MADE_BY))
        elif path.suffix == ".key" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            mode = stat.S_IMODE(path.stat().st_mode)
            problems.append(Problem("tls", f"{path} with mode {mode:04o}", "mode 0600: only its owner may read it"))
    return problems


@dataclass(frozen=True)
class Tls:
    """The TLS contexts of one node.

    *server* is for connections that the node accepts, *client* for connections that it opens.
    """

    server: ssl.SSLContext
    client: ssl.SSLContext


def read_tls(folder: Path, name: str) -> Tls:
    """Return the contexts of *name*. Raise UsageError if its files in *folder* are unusable."""
    if problems := check_files(folder, [name]):
        raise UsageError(problems)
    try:
        authority, certificate, key = files_for(folder, name)
        server, client = _bare(ssl.PROTOCOL_TLS_SERVER), _bare(ssl.PROTOCOL_TLS_CLIENT)
        for context in (server, client):
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(authority)
            context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise UsageError("tls", f"{folder} for {name} ({error})", MADE_BY) from None
    if wrong := _own_fault(server, client, name):
        raise UsageError("tls", f"{certificate_file(folder, name)}: {wrong}", RENEW)
    return Tls(server, client)


def tls_of_coordinator(folder: Path) -> ssl.SSLContext:
    """Return a coordinator's context. It requires no client certificate, since browsers have none.

    Raise UsageError if its files in *folder* are unusable.
    """
    if problems := check_files(folder, [COORDINATOR]):
        raise UsageError(problems)
    server = _bare(ssl.PROTOCOL_TLS_SERVER)
    certificate, key = certificate_file(folder, COORDINATOR), key_file(folder, COORDINATOR)
    try:
        server.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise UsageError("tls", f"{certificate} ({error})", MADE_BY) from None
    if wrong := _own_fault(server, trust(folder), COORDINATOR):
        raise UsageError("tls", f"{certificate}: {wrong}", RENEW)
    return server


def trust(folder: Path) -> ssl.SSLContext:
    """Return the context of a coordinator's clients, which present no certificate.

    Raise UsageError if the CA's certificate in *folder* is unusable.
    """
    authority = certificate_file(folder, AUTHORITY)
    context = _bare(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(authority)
    except (ssl.SSLError, OSError) as error:
        raise UsageError("tls", f"{authority} ({error})", MADE_BY) from None
    return context


def tls_of_launcher(folder: str | None) -> Tls | None:
    """Return a launcher's contexts, or None without TLS. Raise UsageError if its files in *folder*
    are unusable.
    """
    return read_tls(Path(folder), LAUNCHER) if folder is not None else None


def _own_fault(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """Return the fault for which peers would reject the certificate of *name*, or "".

    A handshake in memory, between *server* and *client*, shows the fault.
    """
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    connector = client.wrap_bio(back, there, server_side=False)
    acceptor = server.wrap_bio(there, back, server_side=True)
    for end in (connector, acceptor, connector, acceptor):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            return in_words(error)
    names = names_in(connector.getpeercert())
    return "" if name in names else f"it is that of {', '.join(sorted(names)) or 'no node'}, not of {name}"


def _bare(kind: int) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # node names are not host names: see names_in
    if kind == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # no session is ever resumed, so tickets would be wasted bytes
    return context


_MEANT = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is invalid",
    "UNKNOWN_CA": "the peer does not know our certificate's authority",
    "BAD_CERTIFICATE": "the peer rejects our certificate",
    "CERTIFICATE_EXPIRED": "our certificate has expired",
    "CERTIFICATE_REQUIRED": "the peer requires a certificate",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer shows no certificate",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS: was it started with --tls?",
    "HTTP_REQUEST": "the peer does not speak TLS, but HTTP",
    "UNSUPPORTED_PROTOCOL": "the peer speaks another version of TLS than 1.3",
    "ALERT_PROTOCOL_VERSION": "the peer speaks another version of TLS than this side",
}


def in_words(error: OSError) -> str:
    """Explain *error*, which ended a TLS handshake, to the user."""
    if isinstance(error, ConnectionResetError):
        return f"{str(error) or 'the connection was reset'}, {UNTOLD}"
    if not isinstance(error, ssl.SSLError):
        return str(error) or type(error).__name__
    reason = str(error.reason or "")
    meant = next((words for part, words in _MEANT.items() if part in reason), "")
    if isinstance(error, ssl.SSLCertVerificationError):
        meant = f"its certificate is invalid: {error.verify_message}"
    return f"TLS: {meant or error}"
