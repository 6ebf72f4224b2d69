"""Own code travels with what it imports beside it, and is found where a launcher put it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simcluster.documents import user_code
from simcluster.documents.user_code import files_of, load_function, look_below, place_below
from tests.support.root import PACKAGES, ROOT


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(user_code, "_brought", [])
    (tmp_path / "travels.py").write_text("from beside_travels import value\ndef function():\n    return value\n")
    (tmp_path / "beside_travels.py").write_text("value = 'here'\n")
    (tmp_path / "stays.py").write_text("secret = 1\n")
    yield tmp_path
    sys.modules.pop("beside_travels", None)


def test_what_is_imported_beside_it_travels_along_and_nothing_else(shelf: Path) -> None:
    _, reference = load_function("travels.py:function", shelf, "algorithm")
    assert [path.name for path in files_of([reference])] == ["travels.py", "beside_travels.py"]


def test_what_every_node_has_installed_does_not_travel_even_from_below_the_file() -> None:
    root = ROOT  # this library lies below it, and so may the environment
    travels = files_of([f"{root / 'above.py'}:function"])
    assert Path(__file__) in travels
    assert [path for path in travels if "site-packages" in path.parts or any(map(path.is_relative_to, PACKAGES))] == []


def test_code_that_was_brought_is_found_under_the_path_that_it_had(shelf: Path, tmp_path: Path) -> None:
    brought = tmp_path / "brought"
    for name in ("travels.py", "beside_travels.py"):
        place = place_below(brought, Path("/elsewhere/code") / name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text((shelf / name).read_text().replace("here", "brought"))
    look_below(brought)
    function, reference = load_function("/elsewhere/code/travels.py:function", shelf, "algorithm")
    assert reference == "/elsewhere/code/travels.py:function"
    assert function() == "brought"


@pytest.mark.parametrize("path", ["relative.py", "/a/../../etc/x.py"])
def test_a_path_that_would_leave_the_folder_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not the absolute path"):
        place_below(tmp_path, Path(path))
