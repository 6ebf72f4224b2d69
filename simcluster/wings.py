"""The wings of the house, and the doors to them. The core reaches a wing here, and nowhere else.

`lab` makes experiments on experiments; `lm` plans and serves language models. Both build on the core, which works
without them. Users also reach them by `simcluster.sweep` and its like (see `simcluster.__init__`), and by methods of
their results (`simcluster.results`).
"""

from __future__ import annotations

import importlib
from typing import Any, Final

WINGS: Final = ("lab", "lm")
"""`add_commands` of its `cli.commands` adds its commands to the command line."""

_DOORS: Final = {
    "check_tracker": "lab.tracking:check",
    "follow_run": "lab.tracking.live:LiveTracking",
    "purchases_for": "lab.what_if.offers:offers",
}
"""What else the core or the other wing asks of a wing, by name."""


def open_door(name: str) -> Any:
    """Return the function or class of a wing that has this *name* here."""
    module, _, attribute = _DOORS[name].partition(":")
    return getattr(importlib.import_module(f"simcluster.{module}"), attribute)


def wing_commands(wing: str) -> Any:
    """Return the function that adds the commands of *wing* to a CommandLine."""
    return importlib.import_module(f"simcluster.{wing}.cli.commands").add_commands
