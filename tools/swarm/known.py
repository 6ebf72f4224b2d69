"""Known violations that are not fixed yet. The tests skip these seeds and cases.

Remove an entry when its violation is fixed.

`python -m tools.swarm --seeds 300 --as-found` shows the seeds that still break an invariant.
"""

from __future__ import annotations

from typing import Final

SEEDS: Final[dict[int, str]] = {}
"""Seed in `make test` -> the invariant that it breaks."""

KEPT: Final[dict[str, str]] = {}
"""Name of a case in kept/ -> the invariant that it breaks."""
