"""Who may join, as a conversation between two objects; no socket anywhere."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simcluster_backends.sockets.wire.frame import HANDSHAKE_LIMIT_BYTES
from simcluster_backends.sockets.wire.handshake import AUTHENTICATION_FAILED, Admit, Handshake, PeerIdentity

from simcluster.errors import HandshakeRefused, ProtocolError
from simcluster.payload import PREAMBLE_BYTES

KEY, OTHER_KEY = b"k" * 32, b"j" * 32
RUN, CONFIG = b"r" * 16, b"c" * 32


def connector(key: bytes = KEY, **changes: object) -> Handshake:
    package = str(changes.pop("package", "1.0"))
    me = {"lane": "data", "name": "b", "rank": 1, "run": RUN, "config": CONFIG} | changes
    return Handshake(key, PeerIdentity(**me), accepts=False, package=package)  # type: ignore[arg-type]


def acceptor(key: bytes = KEY, admit: Admit | None = None) -> Handshake:
    return Handshake(key, PeerIdentity("data", "a", 0, RUN, CONFIG), accepts=True, admit=admit, package="1.0")


def talk(first: Handshake, second: Handshake) -> tuple[Exception | None, Exception | None]:
    """Carries messages both ways until nobody has more to say; returns what each side raised."""
    errors: list[Exception | None] = [None, None]
    sides = [first, second]
    moved = True
    while moved:
        moved = False
        for i in (0, 1):
            for header in sides[i].to_send():
                assert PREAMBLE_BYTES + len(header) <= HANDSHAKE_LIMIT_BYTES
                moved = True
                if errors[1 - i] is None:
                    try:
                        sides[1 - i].receive(header)
                    except (HandshakeRefused, ProtocolError) as error:
                        errors[1 - i] = error
    return errors[0], errors[1]


def test_two_that_share_a_key_know_each_other_afterwards() -> None:
    a, b = acceptor(), connector()
    assert talk(b, a) == (None, None)
    assert a.done
    assert b.done
    assert a.peer == PeerIdentity("data", "b", 1, RUN, CONFIG)
    assert b.peer == PeerIdentity("data", "a", 0, RUN, CONFIG)


def test_a_node_that_cannot_know_the_run_yet_may_ask() -> None:
    launcher = Handshake(KEY, PeerIdentity("control", "launcher", -1, RUN), accepts=True)
    node = Handshake(KEY, PeerIdentity("control", "b"), accepts=False)
    assert talk(node, launcher) == (None, None)
    assert node.peer is not None
    assert node.peer.run == RUN


def test_the_longest_name_still_fits_a_handshake_frame() -> None:
    assert talk(connector(name="n" * 64, rank=2**31), acceptor()) == (None, None)


def test_a_wrong_key_is_refused_without_saying_what_was_wrong() -> None:
    # The acceptor proves first, so the connector is the one that finds out, and says only that.
    there, here = talk(b := connector(OTHER_KEY), a := acceptor())
    assert isinstance(there, HandshakeRefused)
    assert isinstance(here, HandshakeRefused)
    assert str(there) == AUTHENTICATION_FAILED
    assert AUTHENTICATION_FAILED in str(here)
    assert not a.done
    assert not b.done


def test_a_connector_that_does_not_check_is_refused_by_the_acceptor() -> None:
    a, b = acceptor(), connector(OTHER_KEY)
    for header in b.to_send():
        a.receive(header)
    hello, proof = a.to_send()
    b.receive(hello)
    with pytest.raises(HandshakeRefused):
        b.receive(proof)
    forged = msgspec.msgpack.encode([2, b"\x00" * 32])
    with pytest.raises(HandshakeRefused, match=AUTHENTICATION_FAILED):
        a.receive(forged)
    assert not a.done


def test_a_proof_cannot_be_sent_back_to_its_maker() -> None:
    a, b = acceptor(), connector()
    for header in b.to_send():
        a.receive(header)
    _, proof = a.to_send()
    with pytest.raises(HandshakeRefused, match=AUTHENTICATION_FAILED):
        a.receive(proof)


def test_a_conversation_cannot_be_repeated() -> None:
    recorded: list[bytes] = []
    a, b = acceptor(), connector()
    recorded += b.to_send()
    a.receive(recorded[0])
    for header in a.to_send():
        b.receive(header)
    recorded += b.to_send()
    a.receive(recorded[1])
    assert a.done
    again = acceptor()
    again.receive(recorded[0])
    with pytest.raises(HandshakeRefused, match=AUTHENTICATION_FAILED):
        again.receive(recorded[1])


def test_another_package_version_is_refused_with_both_named_on_both_sides() -> None:
    there, here = talk(connector(package="2.7"), acceptor())
    for error in (there, here):
        assert isinstance(error, HandshakeRefused)
        assert "2.7" in str(error)
        assert "1.0" in str(error)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"run": b"q" * 16}, "another run"),
        ({"config": b"d" * 32}, "another configuration of the run"),
        ({"lane": "control"}, "lane"),
    ],
)
def test_a_peer_with_the_key_is_told_why_it_may_not_join(changes: dict[str, object], why: str) -> None:
    there, here = talk(connector(**changes), acceptor())
    for error in (there, here):
        assert isinstance(error, HandshakeRefused)
        assert why in str(error)


def test_a_name_that_is_taken_is_refused_to_whoever_has_the_key() -> None:
    asked: list[PeerIdentity] = []

    def admit(peer: PeerIdentity) -> str | None:
        asked.append(peer)
        return f"the name {peer.name!r} is taken"

    there, here = talk(connector(), acceptor(admit=admit))
    for error in (there, here):
        assert isinstance(error, HandshakeRefused)
        assert "the name 'b' is taken" in str(error)
    assert len(asked) == 1
    # Whoever lacks the key learns nothing about names.
    talk(connector(OTHER_KEY), acceptor(admit=admit))
    assert len(asked) == 1


def test_nobody_learns_a_name_before_it_proves_the_key() -> None:
    a = acceptor(admit=lambda peer: "taken")
    b = connector()
    a.receive(b.to_send()[0])
    a.to_send()
    with pytest.raises(HandshakeRefused, match=AUTHENTICATION_FAILED):
        a.receive(msgspec.msgpack.encode([2, b"\x00" * 32]))


def test_every_changed_byte_of_a_conversation_ends_it() -> None:
    for message in range(3):
        for position in range(0, 160, 7):
            a, b = acceptor(), connector()
            number = 0
            failed = False
            sides = (b, a)
            for turn in (0, 1, 0):
                for header in sides[turn].to_send():
                    if number == message:
                        position_here = position % len(header)
                        header = (
                            header[:position_here] + bytes([header[position_here] ^ 0x01]) + header[position_here + 1 :]
                        )
                    number += 1
                    try:
                        sides[1 - turn].receive(header)
                    except (HandshakeRefused, ProtocolError):
                        failed = True
            assert failed, f"message {message}, byte {position}"
            assert not a.done


@pytest.mark.parametrize("header", [b"", b"\xc1", msgspec.msgpack.encode([3]), msgspec.msgpack.encode([2, b"x"])])
def test_what_is_out_of_turn_is_a_protocol_error(header: bytes) -> None:
    for side in (acceptor(), connector()):
        with pytest.raises(ProtocolError):
            side.receive(header)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=216))
def test_no_bytes_raise_anything_but_the_two_errors(header: bytes) -> None:
    for side in (acceptor(), connector()):
        try:
            side.receive(header)
        except (ProtocolError, HandshakeRefused):
            continue
        assert not side.done


def test_what_a_stranger_calls_its_version_is_quoted_for_it_ends_in_logs_and_on_screens() -> None:
    there, here = talk(connector(package="\x1b[2J\nall is well"), acceptor())
    for error in (there, here):
        assert "all is well" in str(error)
        assert str(error).isprintable()
