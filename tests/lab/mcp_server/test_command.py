"""The command `simcluster mcp` without the SDK, and with a wrong root or budget."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.lab.mcp_server.tool_desk import ToolDesk
from simcluster.process.installed import install_extra


def test_without_the_sdk_the_command_says_what_to_install(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "mcp" else find(name, *more))
    code, out, err = command("mcp")
    assert (code, out) == (2, "")
    assert install_extra("mcp") in err


def test_the_root_must_be_a_folder_and_the_budget_positive(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--root: found no folder"):
        ToolDesk(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="--budget: found 0 s"):
        ToolDesk(tmp_path, 0)
