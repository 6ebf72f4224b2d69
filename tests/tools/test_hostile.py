"""Hostile clients: what the corpus raises, and a short siege of a real run; `make hostile` is the long one."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from simcluster_backends.sockets.net.addresses import open_socket
from simcluster_backends.sockets.wire import reader
from simcluster_backends.sockets.wire.frame import FrameKind, Preamble
from simcluster_backends.sockets.wire.protocol import PROTOCOL_VERSION

from tools.hostile import __main__ as hostile
from tools.hostile.clients import Door, GotIn, in_words_of_frames, in_words_of_http, throws
from tools.hostile.inputs import conversation, resealed, wire
from tools.hostile.reading import FAMILIES, corpus, fuzz, mutated, refusals, stops, today, untyped

STRANGERS_AND_PEERS = [path for family in ("frames", "peers") for path in corpus(family)]
MAKERS = {f"{family}-{kind}": make for family in ("frames", "peers") for kind, make in FAMILIES[family].items()}
WIRE = Path(reader.__file__).parent
OUT_OF_REACH = {
    "reader.py": ("the peer speaks version",),  # `today` sees to that
    "body.py": ("no memory for a body",),
    "handshake.py": ("self.refuse(reason)", "welcomed with"),  # come after a proof, which takes the key
    "messages.py": ("a {what} message of at most",),  # about what is sent
}


def test_the_corpus_has_every_kind() -> None:
    for family, kinds in FAMILIES.items():
        names = [path.name for path in corpus(family)]
        assert [kind for kind in kinds if not any(name.startswith(f"{family}-{kind}-") for name in names)] == []


@pytest.mark.parametrize("path", STRANGERS_AND_PEERS, ids=lambda path: path.stem)
def test_the_corpus_raises_typed_errors_alone(path: Path) -> None:
    assert untyped(today(path.read_bytes())) == []


def test_no_input_of_the_corpus_stops_at_the_version_of_the_protocol() -> None:
    said = {said for path in STRANGERS_AND_PEERS for _, said, _ in stops(today(path.read_bytes()))}
    assert [words for words in said if "speaks version" in words] == []


@pytest.mark.parametrize("name", ["reader.py", "body.py", "frame.py", "handshake.py", "messages.py"])
def test_every_check_of_the_wire_refuses_something_of_the_corpus(name: str) -> None:
    reached = {line for path in STRANGERS_AND_PEERS for _, _, line in stops(today(path.read_bytes()))}
    unreached = [
        source for lines, source in refusals(WIRE / name) if not any((name, number) in reached for number in lines)
    ]
    exempt = OUT_OF_REACH.get(name, ())
    assert [source for source in unreached if not any(words in source for words in exempt)] == []


@pytest.mark.parametrize("kind", MAKERS)
def test_new_inputs_of_every_kind_and_accidents_to_them_raise_typed_errors_alone(kind: str) -> None:
    chance = random.Random(kind)
    for _ in range(100):
        data = MAKERS[kind](chance)
        assert untyped(data) == []
        assert untyped(mutated(chance, data[:400])) == []


def test_an_input_of_another_version_is_read_as_one_of_this_version() -> None:
    now = conversation("data", "n0")[0]
    for old in (resealed(now, version=1), now[:20]):
        assert Preamble.read((today(old) + bytes(40))[:40]).version == PROTOCOL_VERSION
    assert today(resealed(now, version=1)) == now
    broken = resealed(now, version=1)[:-1] + b"?"
    assert [said for name, said, _ in stops(today(broken)) if name == "a stranger's connection"] == [
        "a frame with a wrong header checksum"
    ]


def test_the_fuzzer_keeps_what_it_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.hostile.reading.CORPUS", tmp_path)
    (tmp_path / "frames-half-0.bin").write_bytes(b"simc")
    assert fuzz(50, seed=0) == []
    monkeypatch.setattr("tools.hostile.reading.untyped", lambda data: ["a stranger's connection: KeyError"])
    (found, *_) = fuzz(1, seed=0)
    assert found in corpus("frames")


def test_the_clients_would_notice_if_they_were_let_in() -> None:
    with pytest.raises(GotIn, match="welcome"):
        in_words_of_frames(_welcome())
    with pytest.raises(GotIn, match="something else"):
        in_words_of_frames(b"HTTP/1.1 200 OK\r\n")
    with pytest.raises(GotIn, match="answered"):
        in_words_of_http(b"HTTP/1.1 200 OK\r\n\r\n{}")
    assert in_words_of_http(b"HTTP/1.1 401 Unauthorized\r\n\r\n") == "401"


def test_the_clients_would_notice_if_nobody_sent_them_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.hostile.clients.PATIENCE_S", 0.1)
    with open_socket("127.0.0.1", 0, "listen") as deaf:
        deaf.listen()
        door = Door("data", "127.0.0.1", deaf.getsockname()[1], b"")
        how = asyncio.run(throws(door, random.Random(0), lambda chance: conversation("data", "n0")[0]))
    assert how == "HELD OPEN"


@pytest.mark.slow
def test_a_run_among_hostile_clients_ends_as_if_it_were_alone(tmp_path: Path) -> None:
    report = hostile.hold(tmp_path, seconds=2.0, seed=1, pace_s=0.1, after_s=6.0, left_alone=hostile.alone_in_simulator)
    assert report.faults == []
    assert report.weights[0] == report.weights[1]
    # Three kinds of doors; seven kinds of frames and four manners at those of frames, four and three at that of HTTP.
    assert len(report.besieged.tally.ends) == 2 * (7 + 4) + 4 + 3
    assert set(report.among) == {"launcher", "node 0", "node 1", "node 2", "node 3"}


def _welcome() -> bytes:
    return wire(FrameKind.HANDSHAKE, b"\x91\x03")
