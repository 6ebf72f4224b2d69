"""The names that packages had in version 0.1. Importing an old name raises an error with the new
name.
"""

from __future__ import annotations

import sys

_PLACES = {
    "lab": ("bench", "calibrate", "explain", "mcp_server", "replays", "reports", "sweeps", "tracking", "ui", "what_if"),
    "lm": ("serving",),
}
_MOVED = {f"simcluster.{name}": f"simcluster.{wing}.{name}" for wing, names in _PLACES.items() for name in names}
_MOVED |= {
    "simcluster.inference": "simcluster.lm",
    "simcluster.training": "simcluster.lm.training_plans",
    "simcluster.verify": "simcluster.lab.verify",
}


class _MovedNames:
    """A finder at the end of sys.meta_path, which Python asks only if no other finder has the
    module.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError with the new name of the module *name*, if it has moved."""
        if name in _MOVED:
            raise ModuleNotFoundError(f"{name} is {_MOVED[name]} since version 0.2", name=name)


def tell_of_moves() -> None:
    """Install the finder: from now on, an import of an old name fails with the new name."""
    sys.meta_path.append(_MovedNames)
