"""Shipped files are found by name from any folder, in the repository and in a wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcluster.documents import shipped
from simcluster.errors import UsageError


def test_the_topologies_are_shipped() -> None:
    names = "halos-4-regions mixed-desk smolcluster star-8-gigabit this-machine thunderbolt-mesh-4 two-sites-wan"
    assert set(names.split()) == set(shipped.shipped_names("topologies"))


def test_names_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = shipped.shipped_path("topologies", "smolcluster")
    assert path is not None
    assert path.name == "smolcluster.yaml"
    assert shipped.find("topologies", "smolcluster") == path


def test_files_inside_a_wheel_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "simcluster"
    for folder in (package / "shipped" / "topologies", tmp_path / "topologies"):
        folder.mkdir(parents=True)
        (folder / f"{folder.parent.name}.yaml").write_text("")
    monkeypatch.setattr(shipped, "_PACKAGE", package)
    assert shipped.shipped_names("topologies") == ["shipped"]
    assert shipped.shipped_names("experiments") == []
    assert shipped.shipped_path("experiments", "x") is None


def test_a_file_of_that_path_comes_before_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smolcluster").write_text("")
    assert shipped.find("topologies", "smolcluster") == Path("smolcluster")


@pytest.mark.parametrize("name", ["../topologies/smolcluster", "/etc/passwd", "", ".", "..", "a/b", "x\x00"])
def test_a_name_with_folders_in_it_is_no_name(name: str) -> None:
    assert shipped.shipped_path("topologies", name) is None


def test_what_is_not_there_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'smolcluster'"):
        shipped.find("topologies", "smolclustre")
    with pytest.raises(UsageError, match="found no such file, expected the path of a file"):
        shipped.find("experiments", "missing/x.yaml")


def test_a_folder_in_the_place_of_a_file_is_named_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match="topology 'mine': found a folder, expected a path, or the name of a shipped"):
        shipped.find("topologies", "mine")
