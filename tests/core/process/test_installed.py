"""The command that installs an extra, from where this simcluster is from."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from simcluster.process import installed
from simcluster.process.installed import install_extra
from tests.support.root import ROOT


def from_index(monkeypatch: pytest.MonkeyPatch, folder: Path, origin: dict[str, object] | None) -> None:
    """Have simcluster lie in *folder*, where pip noted its *origin* if it came from no index."""
    text = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(installed, "__file__", str(folder / "simcluster" / "process" / "installed.py"))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: SimpleNamespace(read_text=lambda file: text))


def test_a_checkout_that_runs_in_place_is_named_by_its_directory() -> None:
    assert f"{ROOT}[api]" in install_extra("api")


def test_a_release_is_named_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_index(monkeypatch, tmp_path, None)
    assert install_extra("plot-static") == "pip install 'simcluster[plot-static]'"


def test_what_was_installed_from_a_checkout_is_named_by_that_while_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "my checkout"
    from_index(monkeypatch, tmp_path / "site-packages", {"url": checkout.as_uri(), "dir_info": {}})
    assert install_extra("tls") == "pip install 'simcluster[tls]'"
    checkout.mkdir()
    (checkout / "pyproject.toml").touch()
    assert install_extra("tls") == f"pip install '{checkout}[tls]'"


def test_an_editable_checkout_stays_editable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    from_index(monkeypatch, tmp_path, {"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
    assert install_extra("api") == f"pip install -e '{tmp_path}[api]'"
