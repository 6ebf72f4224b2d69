"""An ssh server for the tests that start or ask nodes by ssh."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.sshd import Sshd, sshd, why_not


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    if reason := why_not():
        pytest.skip(reason)
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running
