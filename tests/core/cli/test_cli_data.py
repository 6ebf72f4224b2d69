"""`simcluster data`: MNIST's files and texts, from a loopback server and from this machine."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from simcluster.cli.data import MNIST, fetch_mnist
from simcluster.workloads.models.mnist import load_mnist
from tests.support.file_server import serving


def idx(array: list[list[int]], *sizes: int) -> bytes:
    """A gzip of an IDX file of bytes: its magic, its sizes, its values."""
    values = bytes(value for row in array for value in row)
    return gzip.compress(struct.pack(f">BBBB{len(sizes)}I", 0, 0, 8, len(sizes), *sizes) + values)


def made() -> dict[str, bytes]:
    """Three training images, all 1, 2 and 3, and two held out, all 4 and 5; with their labels."""
    names = [name for name, _, _ in MNIST]
    contents = [
        idx([[grey] * 784 for grey in (1, 2, 3)], 3, 28, 28), idx([[7, 0, 9]], 3),
        idx([[grey] * 784 for grey in (4, 5)], 2, 28, 28), idx([[1, 2]], 2),
    ]  # fmt: skip
    return dict(zip(names, contents, strict=True))


def test_the_four_files_are_fetched_checked_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = made()
    known = [(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in files.items()]
    with serving({f"/mirror/{name}": content for name, content in files.items()}) as server:
        fetch_mnist(tmp_path / "digits", f"{server.url}/mirror/", known)
        fetch_mnist(tmp_path / "digits", f"{server.url}/mirror", known)
        assert len(server.asked) == 4
    train, test = load_mnist(str(tmp_path / "digits"))
    assert torch.equal(train.targets, torch.tensor([7, 0, 9]))
    assert torch.equal(test.targets, torch.tensor([1, 2]))
    said = capsys.readouterr().out
    assert f"3 training images and 2 held out: --set workload.data={tmp_path / 'digits'}" in said


def test_the_published_digests_are_asked_of_a_mirror(command: Any, tmp_path: Path) -> None:
    with serving({f"/{name}": content for name, content in made().items()}) as server:
        code, out, err = command("data", "mnist", "--into", "digits", "--from", server.url)
    assert (code, out) == (1, "")
    assert "expected 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609" in err
    assert list((tmp_path / "digits").iterdir()) == []


def test_a_text_is_fetched_or_copied_and_its_digest_is_told(command: Any, tmp_path: Path) -> None:
    content = b"Call me Ishmael.\n" * 10
    digest = hashlib.sha256(content).hexdigest()
    (tmp_path / "moby.txt").write_bytes(content)
    with serving({"/books/moby%20dick.txt": content}) as server:
        code, out, err = command("data", "text", f"{server.url}/books/moby%20dick.txt", "--into", "texts")
    assert (code, err) == (0, "")
    assert f"texts/moby dick.txt: {len(content)} bytes, SHA-256 {digest}" in out
    for _ in range(2):  # the second time it is there
        code, out, err = command("data", "text", "moby.txt", "--into", "texts", "--sha256", digest.upper())
        assert (code, err) == (0, "")
    assert (tmp_path / "texts" / "moby.txt").read_bytes() == content


def test_a_packed_text_is_named_as_such(command: Any, tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"text"))
    _, out, _ = command("data", "text", "a.gz", "--into", "texts")
    assert "it is a gzip file, so unpack it first" in out
    assert "train on it" not in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mnist", "--from", "ftp://x/y"], "--from: found 'ftp://x/y', expected an address that begins with https://"),
        (["text", "https://example.org/"], "an address that ends in the name of a file"),
        (["text", "https://example.org/.bashrc"], "an address that ends in the name of a file"),
        (["text", "nowhere.txt"], "FILE: found no file nowhere.txt"),
        (["text", "empty.txt"], "FILE: found empty.txt, which is empty"),
        (["text", "there.txt", "--sha256", "12"], "--sha256: found '12', expected 64 hexadecimal digits"),
        (["text", "there.txt", "--sha256", "0" * 64], "the SHA-256 of"),
    ],
)
def test_a_wrong_request_writes_nothing(arguments: list[str], said: str, command: Any, tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("text")
    (tmp_path / "empty.txt").touch()
    code, out, err = command("data", *arguments, "--into", "new")
    assert (code, out) == (2, "")
    assert said in err
    assert not (tmp_path / "new").exists()
