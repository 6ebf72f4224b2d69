"""The options of a backend, checked before there is a job."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

OF_INTERVALS = "replicas"
"""The simulator's option that is taken before its backend sees the others."""


def check_options(backend: str, options: Mapping[str, Any]) -> None:
    """Raise UsageError for every one of *options* that *backend* does not have, or has with other values."""
    own = {name: value for name, value in options.items() if backend != "sim" or name != OF_INTERVALS}
    importlib.import_module(f"simcluster_backends.{backend}").check_options(own)
