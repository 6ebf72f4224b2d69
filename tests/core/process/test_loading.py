"""Imports of torch without a search for garbage."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
import torch  # noqa: F401

from simcluster.process.loading import torch_loads


def printed(code: str) -> str:
    """Return what a new process prints that runs *code*."""
    preamble = "import gc; from simcluster.process.loading import compiler_loads, torch_loads\n"
    done = subprocess.run([sys.executable, "-c", preamble + code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.slow
def test_torch_is_imported_without_looking_for_garbage_and_what_is_there_then_stays() -> None:
    code = (
        "with torch_loads(): import torch; print(gc.isenabled())\nprint(gc.isenabled(), gc.get_freeze_count() > 10**5)"
    )
    assert printed(code).split() == ["False", "True", "True"]


def test_a_users_own_process_is_not_frozen() -> None:
    code = "with compiler_loads(): print(gc.isenabled())\nprint(gc.isenabled(), gc.get_freeze_count())"
    assert printed(code).split() == ["False", "True", "0"]


def test_a_failed_import_looks_for_garbage_again() -> None:
    code = "try:\n  with torch_loads(): raise ImportError\nexcept ImportError: print(gc.isenabled())"
    assert printed(code) == "True"


def test_nothing_changes_where_torch_is_loaded() -> None:
    frozen = gc.get_freeze_count()
    with torch_loads():
        assert gc.isenabled()
    assert gc.get_freeze_count() == frozen


def test_a_process_that_looks_for_no_garbage_goes_on_so() -> None:
    code = "gc.disable()\nwith torch_loads(), compiler_loads(): pass\nprint(gc.isenabled(), gc.get_freeze_count())"
    assert printed(code).split() == ["False", "0"]
