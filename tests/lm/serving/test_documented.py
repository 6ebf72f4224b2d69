"""The examples of docs/serving.md, as they stand but for the port."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.lm.serving.scripted import engine, script, server
from tests.support.root import ROOT

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture
def url() -> Iterator[str]:
    with engine(script) as made, server(made.front, name="smollm2") as running:
        yield running.url


def example(begin: str) -> str:
    """Return the indented block with a line that begins so."""
    found = re.search(rf"^(    {re.escape(begin)}.*?)\n\n", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return re.sub("^    ", "", found[1], flags=re.MULTILINE)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_the_curl_command_gets_an_answer(url: str) -> None:
    command = shlex.split(example("curl").replace("\\\n", " ").replace(ADDRESS, url))
    found = json.loads(subprocess.run([*command, "--silent"], capture_output=True, check=True).stdout)
    assert found["choices"][0]["text"] == " Paris. "  # 8 tokens, of a byte each


def test_the_official_client_prints_the_answer(url: str) -> None:
    pytest.importorskip("openai")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(example("import openai").replace(ADDRESS, url), {})
    assert printed.getvalue() == " Paris. €"
