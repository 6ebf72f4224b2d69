"""The wings are optional packages on top of the core, which imports them only through this module.

`lab` makes experiments on experiments; `lm` plans and serves language models. The core works
without either. Two other modules also lead users to a wing: `simcluster.__init__` has functions
such as `sweep`, and `simcluster.results` has methods that draw and track.
"""

from __future__ import annotations

import importlib
from typing import Any

WINGS = ("lab", "lm")
"""The names of the wings.

A wing adds its commands by the function `add_commands` in its module `cli.commands`.
"""

_DOORS = {
    "check_tracker": "lab.tracking:check",
    "described_presets": "lm.cli.local:described_presets",
    "format_products": "lm.models.format_times:format_products",
    "follow_run": "lab.tracking.live:LiveTracking",
    "local_rows": "lm.cli.local:local_rows",
    "local_table": "lm.cli.local:local_table",
    "purchases_for": "lab.what_if.offers:offers",
}
"""Name for `open_door` -> "module:name" of a function or class in a wing.

These are the other objects that the core, or another wing, uses.
"""


def open_door(name: str) -> Any:
    """Return the function or class that _DOORS lists under *name*."""
    module, _, attribute = _DOORS[name].partition(":")
    return getattr(importlib.import_module(f"simcluster.{module}"), attribute)


def wing_commands(wing: str) -> Any:
    """Return the function that adds the commands of *wing* to a CommandLine."""
    return importlib.import_module(f"simcluster.{wing}.cli.commands").add_commands
