"""The scripted engine and a client of its server, which the tests of the API share."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.lm.serving.scripted import PATIENT, Engine, engine, script, server


@pytest.fixture
def made() -> Iterator[Engine]:
    with engine(script) as found:
        yield found


@pytest.fixture
def client(made: Engine) -> Iterator[httpx.Client]:
    with server(made.front) as running, httpx.Client(base_url=running.url, timeout=PATIENT) as found:
        yield found
