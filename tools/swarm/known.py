"""Violations that are known and not mended yet: a seed or case that is named here is not held. Take off what is mended.

`python -m tools.swarm --seeds 300 --as-found` says which of the seeds still break anything.
"""

from __future__ import annotations

from typing import Final

SEEDS: Final[dict[int, str]] = {}
"""Of the seeds in `make test`, by number: what is broken."""

KEPT: Final[dict[str, str]] = {}
"""Of the cases in kept, by name: what is broken."""
