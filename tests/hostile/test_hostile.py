"""Hostile clients: what the corpus raises, and a short siege of a real run; `make hostile` is the long one."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from simcluster_backends.sockets.net.addresses import open_socket
from tests.hostile import __main__ as hostile
from tests.hostile.clients import Door, GotIn, in_words_of_frames, in_words_of_http, throws
from tests.hostile.inputs import FRAMES, HTTP, conversation, corpus, fuzz, mutated, untyped


def test_the_corpus_has_every_kind() -> None:
    for family, kinds in (("frames", FRAMES), ("http", HTTP)):
        names = [path.name for path in corpus(family)]
        assert [kind for kind in kinds if not any(name.startswith(f"{family}-{kind}-") for name in names)] == []


@pytest.mark.parametrize("path", corpus("frames"), ids=lambda path: path.stem)
def test_whatever_once_was_said_raises_typed_errors_alone(path: Path) -> None:
    assert untyped(path.read_bytes()) == []


@pytest.mark.parametrize("kind", FRAMES)
def test_new_inputs_of_every_kind_and_accidents_to_them_raise_typed_errors_alone(kind: str) -> None:
    chance = random.Random(kind)
    for _ in range(100):
        data = FRAMES[kind](chance)
        assert untyped(data) == []
        assert untyped(mutated(chance, data[:400])) == []


def test_the_fuzzer_keeps_what_it_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.hostile.inputs.CORPUS", tmp_path)
    (tmp_path / "frames-half-0.bin").write_bytes(b"simc")
    assert fuzz(50, seed=0) == []
    monkeypatch.setattr("tests.hostile.inputs.untyped", lambda data: ["a stranger's connection: KeyError"])
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
    monkeypatch.setattr("tests.hostile.clients.PATIENCE_S", 0.1)
    with open_socket("127.0.0.1", 0, "listen") as deaf:
        deaf.listen()
        door = Door("data", "127.0.0.1", deaf.getsockname()[1], b"")
        how = asyncio.run(throws(door, random.Random(0), lambda chance: conversation("data", "n0")[0]))
    assert how == "HELD OPEN"


def test_a_run_among_hostile_clients_ends_as_if_it_were_alone(tmp_path: Path) -> None:
    report = hostile.hold(tmp_path, seconds=2.0, seed=1, pace_s=0.1, after_s=6.0, left_alone=hostile.alone_in_simulator)
    assert report.faults == []
    assert report.weights[0] == report.weights[1]
    # Three kinds of doors; seven kinds of frames and four manners at those of frames, four and three at that of HTTP.
    assert len(report.besieged.tally.ends) == 2 * (7 + 4) + 4 + 3
    assert set(report.among) == {"launcher", "node 0", "node 1", "node 2", "node 3"}


def _welcome() -> bytes:
    from simcluster_backends.sockets.wire.frame import Kind
    from tests.hostile.inputs import wire

    return wire(Kind.HANDSHAKE, b"\x91\x03")
