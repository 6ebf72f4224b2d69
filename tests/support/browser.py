"""A real browser, headless, for tests that open pages; they are skipped where there is none."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def chromium(url: str, profile: Path, width: int) -> subprocess.CompletedProcess[str]:
    """Opens *url* and returns the page as it is after scripts ran, and the browser's log."""
    assert CHROMIUM is not None
    return subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *(f"--user-data-dir={profile}", f"--window-size={width},2000", "--virtual-time-budget=8000"),
            *("--enable-logging=stderr", "--v=0", "--dump-dom", url),
        ],
        capture_output=True,
        text=True,
        check=True,
    )


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium or google-chrome on the path")


def assert_drawn(done: subprocess.CompletedProcess[str], least: int = 4) -> None:
    """No word of complaint, and every figure is there, at least so many."""
    assert "CONSOLE" not in done.stderr
    assert 'data-drawn="true"' in done.stdout
    places, drawn = done.stdout.count("data-figure="), done.stdout.count('class="figure js-plotly-plot"')
    assert places == drawn >= least
