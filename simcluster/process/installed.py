"""The commands that install torch, which simcluster cannot choose for a machine."""

from __future__ import annotations

TORCH = "pip install torch"
CPU_TORCH = "without a GPU, on Linux: pip install torch --index-url https://download.pytorch.org/whl/cpu"
NO_TORCH = f"torch is not installed; install the build for this machine: {TORCH} ({CPU_TORCH})"
