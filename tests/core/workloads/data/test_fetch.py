"""Files fetched from a loopback server: whole or not at all, continued, bounded, from the web alone."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from simcluster.errors import RunError, UsageError
from simcluster.workloads.data.fetch import WebFile, check_url, fetch
from tests.support.file_server import FileServer, serving

CONTENT = bytes(range(256)) * 400
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def of(server: FileServer, sha256: str | None = SHA256, most_bytes: int = len(CONTENT)) -> WebFile:
    return WebFile(f"{server.url}/big", "big", most_bytes, sha256)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_saved_under_its_name_and_not_fetched_twice(tmp_path: Path) -> None:
    with serving({"/big": CONTENT}) as server:
        assert fetch(of(server), tmp_path / "new" / "one") == (SHA256, len(CONTENT))
        assert fetch(of(server), tmp_path / "new" / "one") == (SHA256, len(CONTENT))
        assert server.asked == [("/big", "")]
    assert (tmp_path / "new" / "one" / "big").read_bytes() == CONTENT
    assert names(tmp_path / "new" / "one") == ["big"]


def test_what_was_cut_off_continues_at_its_last_byte(tmp_path: Path) -> None:
    """Twice 40,000 of 102,400 bytes, then the other 22,400: no byte is sent twice."""
    with serving({"/big": CONTENT}) as server:
        server.cut_after = 40_000
        for done in (40_000, 80_000):
            with pytest.raises(RunError, match=f"ended after {done:,} of 102,400 bytes; the same command continues"):
                fetch(of(server), tmp_path)
            assert not (tmp_path / "big").exists()
        fetch(of(server), tmp_path)
        assert [wanted for _, wanted in server.asked] == ["", "bytes=40000-", "bytes=80000-"]
        assert server.sent_bytes == len(CONTENT)
    assert (tmp_path / "big").read_bytes() == CONTENT


def test_a_server_without_ranges_begins_again(tmp_path: Path) -> None:
    with serving({"/big": CONTENT}) as server:
        server.cut_after = 1000
        with pytest.raises(RunError):
            fetch(of(server), tmp_path)
        server.cut_after, server.has_ranges = None, False
        fetch(of(server), tmp_path)
    assert (tmp_path / "big").read_bytes() == CONTENT


def test_a_part_as_long_as_the_file_is_fetched_again(tmp_path: Path) -> None:
    """The server has no bytes after it: status 416."""
    (tmp_path / ".partial-big").write_bytes(b"x" * len(CONTENT))
    with serving({"/big": CONTENT}) as server:
        fetch(of(server), tmp_path)
        assert [wanted for _, wanted in server.asked] == ["bytes=102400-", ""]
    assert (tmp_path / "big").read_bytes() == CONTENT


def test_without_a_digest_a_part_may_be_of_another_version_and_is_thrown_away(tmp_path: Path) -> None:
    (tmp_path / ".partial-big").write_bytes(b"another version")
    with serving({"/big": CONTENT}) as server:
        assert fetch(of(server, None), tmp_path) == (SHA256, len(CONTENT))
        assert server.asked == [("/big", "")]


def test_another_content_is_no_result_and_its_part_is_removed(tmp_path: Path) -> None:
    with serving({"/big": CONTENT[:-1] + b"!"}) as server, pytest.raises(RunError, match=f"expected {SHA256}"):
        fetch(of(server), tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("tells_length", [True, False])
def test_more_bytes_than_expected_are_refused_whether_announced_or_not(tells_length: bool, tmp_path: Path) -> None:
    with serving({"/big": CONTENT}) as server:
        server.tells_length = tells_length
        with pytest.raises(RunError, match="more than 1,000"):
            fetch(of(server, most_bytes=1000), tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("elsewhere", ["file:///etc/hostname", "ftp://127.0.0.1/x"])
def test_a_redirection_away_from_the_web_is_refused(elsewhere: str, tmp_path: Path) -> None:
    with serving({"/big": CONTENT}) as server:
        server.redirects = elsewhere
        with pytest.raises(RunError, match=f"[Rr]edirect.*{elsewhere}"):
            fetch(of(server), tmp_path)


def test_a_link_in_the_place_of_the_part_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / ".partial-big").symlink_to(tmp_path / "mine")
    with serving({"/big": CONTENT}) as server, pytest.raises(UsageError, match="symbolic link"):
        fetch(of(server), tmp_path / "in")
    assert (tmp_path / "mine").read_text() == "mine"


def test_another_file_of_that_name_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "big").write_text("mine")
    with serving({"/big": CONTENT}) as server:
        for file in (of(server), of(server, None)):
            with pytest.raises(UsageError, match="another file, expected another directory, or remove it"):
                fetch(file, tmp_path)
        assert server.asked == []


def test_what_the_server_or_the_network_says_is_told(tmp_path: Path) -> None:
    with serving({}) as server:
        file = of(server)
        with pytest.raises(RunError, match="status 404"):
            fetch(file, tmp_path)
    with pytest.raises(RunError, match="cannot fetch"):
        fetch(replace(file, url="http://127.0.0.1:1/big"), tmp_path)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "https://", "http://h/a b", "http://h:99999/x", "http://u:p@h/x"]
)
def test_an_address_that_is_not_the_webs_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="--from"):
        check_url(url, "--from")
