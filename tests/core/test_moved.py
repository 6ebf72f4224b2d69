"""Names of version 0.1 say what they are now; what the documents promise of `simcluster.verify` holds."""

from __future__ import annotations

import importlib

import pytest

import simcluster
from simcluster.lab.verify import verify
from simcluster.moved import _MOVED


@pytest.mark.parametrize("old", sorted(_MOVED))
def test_an_import_of_an_old_name_tells_the_new_one_which_is_there(old: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"{old} is (simcluster[.a-z_]+) since version 0.2") as told:
        importlib.import_module(f"{old}.anything")
    assert importlib.import_module(str(told.value).split()[2])


def test_verify_is_called_as_before() -> None:
    assert simcluster.verify.verify is verify
    with pytest.raises(simcluster.UsageError):
        simcluster.verify("no such algorithm")
