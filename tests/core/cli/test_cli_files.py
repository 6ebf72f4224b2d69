"""Files for users are written whole or not at all, and what cannot be written is told before any work."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcluster.cli.terminal.show import check_target, write_file
from simcluster.errors import UsageError
from tests.core.runs.test_folder import no_file_above


def test_a_file_is_written_over_an_earlier_one(tmp_path: Path) -> None:
    for text in ("first", "second"):
        write_file(tmp_path / "a.html", text)
        assert (tmp_path / "a.html").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]


def test_a_full_disk_leaves_the_earlier_file_as_it_was(tmp_path: Path) -> None:
    write_file(tmp_path / "a.html", "first")
    with no_file_above(1000), pytest.raises(UsageError, match=r"cannot write .*: File too large; choose another --out"):
        write_file(tmp_path / "a.html", "x" * 5000)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.html", "first")]


def test_a_place_that_cannot_be_written_is_told_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_target(tmp_path / "a.html")
    with pytest.raises(UsageError, match="a folder that exists"):
        check_target(tmp_path / "nowhere" / "a.html")
    with pytest.raises(UsageError, match=r"found the folder .*, expected a file"):
        check_target(tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)  # root may write everywhere
    with pytest.raises(UsageError, match="a folder that can be written"):
        check_target(tmp_path / "a.html")
