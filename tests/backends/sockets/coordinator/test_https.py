"""The coordinator over TLS: who is told the token, who is not, what strangers can do, and a run that meets there."""

from __future__ import annotations

import datetime
import http.client
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from simcluster_backends.sockets import run_cluster
from simcluster_backends.sockets.coordinator import rate_limits as patience
from simcluster_backends.sockets.coordinator.client import Client, NoAnswer, NotAllowed
from simcluster_backends.sockets.coordinator.desk import CoordinatorDesk
from simcluster_backends.sockets.coordinator.service import CoordinatorService
from simcluster_backends.sockets.launcher.settings import check_coordinator
from simcluster_backends.sockets.net import certificates
from simcluster_backends.sockets.net.addresses import parse_endpoint
from simcluster_backends.sockets.net.certificates import make_certificates
from simcluster_backends.sockets.net.tls import tls_of_coordinator
from simcluster_backends.sockets.node.attend import attend_with_files

from simcluster.errors import RunError, UsageError
from tests.backends.sockets.coordinator.test_patience import TOKEN, answer, check_crowd, uvicorns_log, visit
from tests.backends.sockets.launcher.test_reporting import meet, token_file
from tests.support.socket_runs import job, wait_for

__all__ = ["token_file"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    make_certificates(made, ["a", "b"], 1, ["shelf.local", "10.1.2.3"])
    return made


@pytest.fixture
def service(folder: Path) -> Iterator[CoordinatorService]:
    service = CoordinatorService(
        "127.0.0.1:0", TOKEN, CoordinatorDesk(5.0, time.monotonic), secure=tls_of_coordinator(folder)
    )
    service.start()
    yield service
    service.close()


def browser(folder: Path) -> ssl.SSLContext:
    """Another program's context, which knows the authority and holds a server to the name that it is called by."""
    return ssl.create_default_context(cafile=folder / "ca.pem")


def test_a_client_that_knows_the_authority_is_answered_over_tls_1_3(service: CoordinatorService, folder: Path) -> None:
    assert service.url.startswith("https://127.0.0.1:")
    assert Client(service.url, TOKEN, tls=str(folder)).get("/status")["workers"] == []
    _, port = parse_endpoint(service.endpoint, "coordinator")
    connection = http.client.HTTPSConnection("localhost", port, context=browser(folder))
    for _ in range(3):
        connection.request("GET", "/status", headers={"Authorization": f"Bearer {TOKEN}"})
        assert connection.getresponse().read().startswith(b"{")
    assert isinstance(connection.sock, ssl.SSLSocket)
    assert connection.sock.version() == "TLSv1.3"
    connection.close()


def shown(context: ssl.SSLContext, name: str, server: ssl.SSLContext) -> None:
    """Raises what a connector that calls the acceptor *name* says of what that shows."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = context.wrap_bio(back, there, server_hostname=name), server.wrap_bio(there, back, server_side=True)
    for end in (*ends, *ends):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue


def test_a_browser_finds_every_name_that_the_certificate_was_made_for(folder: Path) -> None:
    server = tls_of_coordinator(folder)
    for name in ("localhost", "127.0.0.1", "::1", "shelf.local", "10.1.2.3"):
        shown(browser(folder), name, server)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch, certificate is not valid for 'other\.local'"):
        shown(browser(folder), "other.local", server)


class Overheard:
    """A server that shows the certificate of *name* and keeps what it is told."""

    def __init__(self, folder: Path, name: str) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self.listening.getsockname()[1]}"
        self.told = b""
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        with self.listening, self.listening.accept()[0] as visitor:
            visitor.settimeout(20.0)
            try:
                with self.context.wrap_socket(visitor, server_side=True) as secured:
                    self.told = secured.recv(65536)
            except OSError:
                return


def expired(folder: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same authority with a coordinator whose certificate is over since two days."""
    shutil.copytree(folder, made)
    for kind in ("pem", "key"):
        (made / f"coordinator.{kind}").unlink()
    monkeypatch.setattr(certificates, "VALID_FROM", -datetime.timedelta(days=3))
    make_certificates(made, [], 1)
    return made


def test_nobody_else_is_told_the_token_whatever_it_shows(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificates(tmp_path / "other", [], 1)
    old = expired(folder, tmp_path / "old", monkeypatch)
    for where, name, words in (
        (tmp_path / "other", "coordinator", "its certificate is invalid: "),
        (old, "coordinator", "its certificate is invalid: certificate has expired"),
        (folder, "a", "which shows the certificate of a, expected that of a coordinator"),
    ):
        server = Overheard(where, name)
        with pytest.raises(NotAllowed, match=words):
            Client(server.url, TOKEN, tls=str(folder)).get("/status")
        server.thread.join(20)
        assert server.told == b""
    with pytest.raises(UsageError, match=r"coordinator\.pem: TLS: its certificate is invalid: certificate has expired"):
        tls_of_coordinator(old)


def test_http_at_a_port_of_https_fails_with_a_hint_and_https_at_http_is_refused(
    service: CoordinatorService, folder: Path
) -> None:
    with pytest.raises(NoAnswer, match="if it was started with --tls: use https:// and --tls FOLDER"):
        Client(service.url.replace("https", "http"), TOKEN).get("/status")
    plain = CoordinatorService("127.0.0.1:0", TOKEN, CoordinatorDesk(5.0, time.monotonic))
    plain.start()
    try:
        with pytest.raises(NotAllowed, match="the peer does not speak TLS"):
            Client(plain.url.replace("http", "https"), TOKEN, tls=str(folder)).get("/status")
    finally:
        plain.close()


def test_strangers_that_never_end_the_handshake_of_tls_are_limited_and_dropped(
    service: CoordinatorService, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "ASK_S", 60.0)
    check_crowd(service, Client(service.url, TOKEN, tls=str(folder)))


def test_a_stranger_has_no_longer_for_tls_than_for_a_request(
    service: CoordinatorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "ASK_S", 0.2)
    with visit(service) as visitor:
        assert answer(visitor) == b""


@pytest.mark.parametrize("ask", [lambda url: Client(url, TOKEN), lambda url: check_coordinator(url, None, False)])
@pytest.mark.parametrize("url", ["http://10.1.2.3:1", "http://shelf.local:1"])
def test_a_token_crosses_no_network_in_clear_unless_that_is_asked_for(ask: Callable[[str], Any], url: str) -> None:
    with pytest.raises(UsageError, match="--plain-http: anyone on the path could read the token"):
        ask(url)
    Client(url, TOKEN, plain_http=True)
    for loopback in ("http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"):
        ask(loopback)


def test_a_service_off_loopback_needs_tls_or_to_be_told_that_it_may_be_plain(folder: Path) -> None:
    with pytest.raises(
        UsageError, match=r"10\.1\.2\.3:1, expected --tls FOLDER, an address on loopback, or --plain-http"
    ):
        check_coordinator("10.1.2.3:1", None, False)
    check_coordinator("10.1.2.3:1", str(folder), False)
    check_coordinator("10.1.2.3:1", None, True)
    with pytest.raises(UsageError, match="--tls FOLDER, too: its"):
        check_coordinator("https://10.1.2.3:1", None, False)


def test_an_older_folder_is_told_how_it_gets_a_coordinators_certificate(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "old")
    for kind in ("pem", "key"):
        (tmp_path / "old" / f"coordinator.{kind}").unlink()
    with pytest.raises(UsageError, match=r"no .*coordinator\.pem, expected a file made by `simcluster keys init`"):
        tls_of_coordinator(tmp_path / "old")
    assert [path.name for path in make_certificates(tmp_path / "old", ["a"], 1)] == [
        "coordinator.key",
        "coordinator.pem",
    ]
    tls_of_coordinator(tmp_path / "old")
    with pytest.raises(UsageError, match=r"coordinator\.pem already"):
        make_certificates(tmp_path / "old", ["a"], 1, ["shelf.local"])


def test_a_node_and_a_run_meet_over_https_and_tls(service: CoordinatorService, folder: Path, token_file: Path) -> None:
    meet(service, token_file, tls=str(folder))


def test_a_run_whose_coordinator_refuses_it_ends_before_it_starts(
    service: CoordinatorService, token_file: Path, tmp_path: Path, folder: Path
) -> None:
    token_file.write_text("x" * 40)
    options = {"coordinator": service.url, "token_file": str(token_file), "tls": str(folder)}
    with pytest.raises(UsageError, match="which does not take this token"):
        run_cluster(job("ring", "ab", options=options))
    make_certificates(tmp_path / "other", ["a", "b"], 1)
    with pytest.raises(UsageError, match="its certificate is invalid"):
        run_cluster(job("ring", "ab", options=options | {"tls": str(tmp_path / "other")}))


def test_a_node_whose_coordinator_shows_another_authority_gives_up_at_once(
    service: CoordinatorService, token_file: Path, tmp_path: Path
) -> None:
    make_certificates(tmp_path / "other", ["b"], 1)
    with pytest.raises(NotAllowed, match="its certificate is invalid"):
        attend_with_files("b", service.url, token_file, None, None, str(tmp_path / "other"), 3600.0)


def test_whoever_is_refused_is_told_of_in_the_log_with_its_reason(service: CoordinatorService, tmp_path: Path) -> None:
    make_certificates(tmp_path / "other", [], 1)
    with uvicorns_log() as told:
        with pytest.raises(RunError):
            Client(service.url, TOKEN, tls=str(tmp_path / "other")).get("/status")
        wait_for(lambda: told)
    assert "the peer does not know our certificate's authority" in told[0]
