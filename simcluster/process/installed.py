"""The commands that install missing packages: extras, and torch, in the build for the machine."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

TORCH = "pip install torch"
CPU_TORCH = "without a GPU, on Linux: pip install torch --index-url https://download.pytorch.org/whl/cpu"
NO_TORCH = f"torch is not installed; install the build for this machine: {TORCH} ({CPU_TORCH})"

OF_PAGES = ("fastapi", "uvicorn", "prometheus_client")
"""The modules that a page server imports; the extra `api` installs them."""


def install_extra(name: str) -> str:
    """Return the command that installs the extra *name* from the origin of this simcluster: a
    checkout or an index.
    """
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    package = "simcluster"
    try:
        origin = json.loads(distribution(package).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    checkout = Path(__file__).parents[2]
    if not (checkout / "pyproject.toml").is_file():
        checkout = Path(url2pathname(urlsplit(origin.get("url", "")).path))
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    is_there = checkout.is_absolute() and (checkout / "pyproject.toml").is_file()
    return f"pip install {editable if is_there else ''}{shlex.quote(f'{checkout if is_there else package}[{name}]')}"
