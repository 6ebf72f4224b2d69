"""Packages that are not installed, with the command that installs each."""

from __future__ import annotations

NO_TORCH = (
    "torch is not installed; install the build for this machine: pip install torch "
    "(CPU only, on Linux: pip install torch --index-url https://download.pytorch.org/whl/cpu)"
)
