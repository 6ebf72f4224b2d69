"""Mutual TLS: who shows what is let in, who does not is refused at once and by a typed error that says why."""

from __future__ import annotations

import asyncio
import datetime
import errno
import math
import os
import shutil
import ssl
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from simcluster_backends.common.event_loop import run_to_its_end
from simcluster_backends.sockets import run_cluster
from simcluster_backends.sockets.launcher.settings import read_options
from simcluster_backends.sockets.net import certificates, tls
from simcluster_backends.sockets.net import listener as listener_module
from simcluster_backends.sockets.net.addresses import open_socket
from simcluster_backends.sockets.net.certificates import make_certificates
from simcluster_backends.sockets.net.connection import Connection
from simcluster_backends.sockets.net.listener import PENDING_LIMIT, SocketListener, connect
from simcluster_backends.sockets.net.tls import Tls, check_files, names_in, read_tls
from simcluster_backends.sockets.node.order import loop_factory
from simcluster_backends.sockets.wire.frame import FrameKind, as_octets
from simcluster_backends.sockets.wire.handshake import Handshake, PeerIdentity
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame

from simcluster.errors import HandshakeRefused, UsageError
from simcluster.job import ClusterJob
from tests.support.socket_runs import job

KEY = b"k" * 32
BODY = bytes(range(256)) * 4096


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    make_certificates(made, ["a", "b"], 1)
    return made


UNTOLD = "before the handshake was done; the peer's log says why: likely only one side has --tls, or our certificate is"


def meet(
    server: Tls | None, client: Tls | None, name: str = "b", uvloop: bool = False, timeout_s: float = 60.0
) -> list[Any]:
    """[the name that the server has seen, what it has received] of a connection by *name*; raises what *connect* does.

    With what the listener dropped as notes of the error.
    """

    async def both() -> list[Any]:
        seen: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

        def opened(connection: Connection) -> None:
            connection.on_frame = lambda frame: seen.set_result([connection.peer.name, frame.body])

        def make(who: str, accepts: bool) -> Callable[[], Handshake]:
            return lambda: Handshake(KEY, PeerIdentity("control", who), accepts=accepts)

        listener = SocketListener(make("a", True), opened, tls=server)
        await listener.start(open_socket("127.0.0.1", 0, "test"))
        try:
            connection = await connect(
                "127.0.0.1", listener.port, make(name, False), on_open=lambda _: None, timeout_s=timeout_s, tls=client
            )
            connection.put(OutgoingFrame(FrameKind.CONTROL, b"", [as_octets(BODY)]))
            found = await seen
            await connection.end()
            return found
        except Exception as error:
            async with asyncio.timeout(60.0):
                while not listener.dropped:  # the other end refuses a moment later
                    await asyncio.sleep(0.001)
            for words in listener.dropped:
                error.add_note(words)
            raise
        finally:
            await listener.close()

    return run_to_its_end(both(), loop_factory(uvloop))


@pytest.mark.parametrize("uvloop", [False, True])
def test_whoever_shows_its_own_certificate_is_let_in_and_heard(folder: Path, uvloop: bool) -> None:
    assert meet(read_tls(folder, "a"), read_tls(folder, "b"), uvloop=uvloop) == ["b", BODY]


@pytest.mark.parametrize("uvloop", [False, True])
def test_a_certificate_of_another_name_is_refused_on_both_sides(folder: Path, uvloop: bool) -> None:
    with pytest.raises(HandshakeRefused, match=r"the certificate is that of b, not of 'c'") as error:
        meet(read_tls(folder, "a"), read_tls(folder, "b"), name="c", uvloop=uvloop)
    assert "the certificate is that of b, not of 'c'" in "".join(error.value.__notes__)
    with pytest.raises(HandshakeRefused, match=r"the certificate is that of b, not of 'a'"):
        meet(read_tls(folder, "b"), read_tls(folder, "b"), uvloop=uvloop)


@pytest.mark.parametrize("uvloop", [False, True])
def test_certificates_of_another_authority_are_refused_by_whoever_is_shown_them(
    folder: Path, tmp_path: Path, uvloop: bool
) -> None:
    make_certificates(tmp_path / "other", ["a", "b"], 1)
    theirs, ours = read_tls(tmp_path / "other", "b"), read_tls(folder, "a")
    with pytest.raises(
        HandshakeRefused, match="its certificate is invalid: self-signed certificate in certificate chain"
    ):
        meet(ours, theirs, uvloop=uvloop)
    # A connector that believes the acceptor's authority, but shows one of its own, finds that out itself.
    mixed = tmp_path / "mixed"
    shutil.copytree(tmp_path / "other", mixed)
    shutil.copy(folder / "ca.pem", mixed / "ca.pem")
    with pytest.raises(UsageError, match=r"b\.pem: TLS: its certificate is invalid: unable to get local issuer"):
        read_tls(mixed, "b")
    with pytest.raises(HandshakeRefused, match=UNTOLD) as error:
        meet(ours, Tls(theirs.server, _trusting(theirs.client, folder)), uvloop=uvloop, timeout_s=math.inf)
    assert "its certificate is invalid: self-signed certificate" in "".join(error.value.__notes__)


def _trusting(context: ssl.SSLContext, folder: Path) -> ssl.SSLContext:
    context.load_verify_locations(folder / "ca.pem")
    return context


@pytest.mark.parametrize("uvloop", [False, True])
def test_an_expired_certificate_is_refused_and_logged_where_it_was_seen(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uvloop: bool
) -> None:
    old = tmp_path / "old"
    shutil.copytree(folder, old)
    for file in old.glob("b.*"):
        file.unlink()
    # Valid from three days before it is made until one day after that: it has expired two days ago.
    monkeypatch.setattr(certificates, "VALID_FROM", -datetime.timedelta(days=3))
    make_certificates(old, ["b"], 1)
    with pytest.raises(UsageError, match=r"b\.pem: TLS: its certificate is invalid: certificate has expired"):
        read_tls(old, "b")
    monkeypatch.setattr(tls, "_own_fault", lambda *_: "")  # a node whose clock is wrong
    with pytest.raises(HandshakeRefused, match="its certificate is invalid: certificate has expired") as error:
        meet(read_tls(old, "b"), read_tls(folder, "b"), uvloop=uvloop)
    assert UNTOLD in "".join(error.value.__notes__)
    with pytest.raises(HandshakeRefused, match=UNTOLD) as error:
        meet(read_tls(folder, "a"), read_tls(old, "b"), uvloop=uvloop, timeout_s=math.inf)
    assert "its certificate is invalid: certificate has expired" in "".join(error.value.__notes__)


@pytest.mark.parametrize("uvloop", [False, True])
def test_a_client_without_a_certificate_is_refused_and_logged(folder: Path, uvloop: bool) -> None:
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # another program's: it has none of what is ours
    bare.check_hostname = False
    bare.load_verify_locations(folder / "ca.pem")
    ours = read_tls(folder, "a")
    with pytest.raises(HandshakeRefused, match=UNTOLD) as error:
        meet(ours, Tls(ours.server, bare), uvloop=uvloop, timeout_s=math.inf)
    assert "the peer shows no certificate" in "".join(error.value.__notes__)


def test_a_certificate_in_anothers_place_is_found_before_anything_is_connected(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "swapped")
    for kind in ("pem", "key"):
        shutil.copy(folder / f"a.{kind}", tmp_path / "swapped" / f"b.{kind}")
    with pytest.raises(UsageError, match="it is that of a, not of b"):
        read_tls(tmp_path / "swapped", "b")


@pytest.mark.parametrize("uvloop", [False, True])
def test_tls_on_one_side_only_is_refused_and_logged(folder: Path, uvloop: bool) -> None:
    with pytest.raises(HandshakeRefused, match=UNTOLD) as error:
        meet(read_tls(folder, "a"), None, uvloop=uvloop, timeout_s=0.3)
    assert "the peer does not speak TLS: was it started with --tls?" in "".join(error.value.__notes__)
    with pytest.raises(HandshakeRefused, match="the peer does not speak TLS: was it started") as error:
        meet(None, read_tls(folder, "b"), uvloop=uvloop)
    assert "the peer speaks TLS and this side does not" in "".join(error.value.__notes__)


@pytest.mark.parametrize("uvloop", [False, True])
def test_a_peer_that_never_speaks_tls_is_not_tried_for_ever(
    folder: Path, uvloop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "RETRY_S", 0.0)
    monkeypatch.setattr(listener_module, "UNSECURED", 7)

    async def visits() -> int:
        knocks = 0

        def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal knocks
            knocks += 1
            writer.close()

        server = await asyncio.start_server(close, "127.0.0.1", 0)
        async with server:
            make = partial(Handshake, KEY, PeerIdentity("control", "b"), accepts=False)
            port, given = server.sockets[0].getsockname()[1], read_tls(folder, "b")
            with pytest.raises(HandshakeRefused, match="likely only one side has --tls"):
                await connect("127.0.0.1", port, make, on_open=lambda _: None, timeout_s=math.inf, tls=given)
        return knocks

    assert run_to_its_end(visits(), loop_factory(uvloop)) == 7


@pytest.mark.parametrize("uvloop", [False, True])
def test_strangers_that_do_not_come_to_the_point_are_limited_before_they_speak_tls(
    folder: Path, uvloop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "HANDSHAKE_TIMEOUT_S", 60.0)

    async def crowd() -> SocketListener:
        door = SocketListener(
            lambda: Handshake(KEY, PeerIdentity("data", "a", 0), accepts=True),
            lambda _: None,
            tls=read_tls(folder, "a"),
        )
        await door.start(open_socket("127.0.0.1", 0, "listen"))
        visits = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(PENDING_LIMIT + 10)]
        for reader, _ in visits[PENDING_LIMIT:]:
            with suppress(ConnectionError):
                assert await reader.read() == b""
        for _, writer in visits[:10]:  # a visitor that is gone takes no place
            writer.close()
        while len(door._pending) > PENDING_LIMIT - 10:
            await asyncio.sleep(0.01)
        assert len(door._pending) == PENDING_LIMIT - 10
        for _, writer in visits:
            writer.close()
        await door.close()
        assert door._pending == {}
        return door

    door = run_to_its_end(crowd(), loop_factory(uvloop))
    assert door.dropped_count >= 20


def test_only_tls_1_3_is_spoken(folder: Path) -> None:
    old = read_tls(folder, "b")
    old.client.minimum_version = ssl.TLSVersion.TLSv1_2
    old.client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(HandshakeRefused, match=UNTOLD) as error:
        meet(read_tls(folder, "a"), old, timeout_s=0.3)
    assert "the peer speaks another version of TLS than 1.3" in "".join(error.value.__notes__)


def test_a_run_over_tls_needs_no_other_key(folder: Path) -> None:
    record = run_cluster(job("ring", "ab", options={"tls": str(folder)}))
    assert record.error is None
    assert [node.weights_sha256 for node in record.nodes] == ["m-1.0", "m-1.0"]


def test_keys_are_their_owners_and_what_is_there_stays(folder: Path, tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "new" / "folder", ["x"], 30)
    assert [path.name for path in made] == [
        f"{name}.{kind}" for name in ("ca", "launcher", "coordinator", "x") for kind in ("key", "pem")
    ]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in made if path.suffix == ".key")
    more = make_certificates(tmp_path / "new" / "folder", ["x", "y"], 30)
    assert [path.name for path in more] == ["y.key", "y.pem"]
    make_certificates(tmp_path / "new" / "folder", ["a"], 30)  # by the same authority as x
    assert meet(read_tls(tmp_path / "new" / "folder", "a"), read_tls(tmp_path / "new" / "folder", "x"), "x")[0] == "x"


def test_everything_that_is_wrong_is_told_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as error:
        make_certificates(tmp_path / "file", ["a", "launcher", "coordinator"], 0, ["h:1", "[::1]", "::1", "a.b-c"])
    assert [problem.key for problem in error.value.problems] == ["folder", "--days", *["topology"] * 2, *["--host"] * 2]
    (tmp_path / "half").mkdir()
    make_certificates(tmp_path / "half", [], 1)
    (tmp_path / "half" / "ca.key").unlink()
    with pytest.raises(UsageError, match=r"ca\.pem without ca\.key"):
        make_certificates(tmp_path / "half", ["a"], 1)


def test_a_full_disk_leaves_no_half_of_a_pair_and_what_is_whole_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, open_file = [0], os.fdopen

    def full(descriptor: int, mode: str) -> Any:
        opened[0] += 1
        if opened[0] == 4:  # the launcher's certificate, after ca.key, ca.pem and launcher.key
            os.close(descriptor)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return open_file(descriptor, mode)

    monkeypatch.setattr(certificates.os, "fdopen", full)
    with pytest.raises(UsageError, match=r"No space left on device.*, expected a folder that can be written to"):
        make_certificates(tmp_path, ["a"], 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.key", "ca.pem"]
    assert len(make_certificates(tmp_path, ["a"], 1)) == 6
    read_tls(tmp_path, "a")


def test_a_run_is_refused_whose_nodes_lack_certificates_or_show_their_keys(folder: Path, tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    shutil.copytree(folder, open_folder)
    (open_folder / "a.key").chmod(0o644)
    (open_folder / "b.pem").unlink()
    with pytest.raises(UsageError) as error:
        read_options(ClusterJob(["a", "b"], "{}", options={"tls": str(open_folder)}))
    assert (
        sorted(str(problem).partition(", expected")[0] for problem in error.value.problems)
        == [
            f"tls: found no {open_folder / 'b.pem'}",
            f"tls: found {open_folder / 'a.key'} with mode 0644",
        ][::-1]
    )
    assert check_files(folder, ["a", "b"]) == []


def test_a_run_is_refused_one_of_whose_nodes_has_a_certificate_that_the_others_would_refuse(
    folder: Path, tmp_path: Path
) -> None:
    make_certificates(tmp_path / "other", ["b"], 1)
    mixed = tmp_path / "mixed"
    shutil.copytree(folder, mixed)
    for kind in ("pem", "key"):
        shutil.copy(tmp_path / "other" / f"b.{kind}", mixed / f"b.{kind}")
    with pytest.raises(UsageError) as error:
        read_options(ClusterJob(["a", "b"], "{}", options={"tls": str(mixed)}))
    (problem,) = error.value.problems
    assert problem.found.startswith(f"{mixed / 'b.pem'}: TLS: its certificate is invalid: ")
    by_hand = ClusterJob(["a", "b"], "{}", addresses=[None, ("127.0.0.1", 7000)], options={"tls": str(mixed)})
    read_options(by_hand)  # whoever starts b has b's files


def test_a_name_is_read_from_nothing_but_our_own_uri() -> None:
    assert names_in({"subjectAltName": (("DNS", "a"), ("URI", "simcluster://node/b"), ("URI", "https://c"))}) == {"b"}
    assert names_in(None) == frozenset()


def test_the_command_makes_a_certificate_for_each_process_of_a_topology(command: Any, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("nodes:\n  mini1: {flops: 1 GFLOP/s}\n")
    code, out, _ = command("keys", "init", "certificates", "--topology", "t.yaml", "--nproc-per-node", "2")
    assert code == 0
    assert {Path(line).name for line in out.split()} >= {"ca.pem", "launcher.pem", "mini1_0.pem", "mini1_1.key"}
