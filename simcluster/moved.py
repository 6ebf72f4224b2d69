"""The names that packages had in version 0.1: an import of one says what it is called now."""

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
    """Is asked for a module that nothing else has found."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError with the new name, if *name* has one."""
        if name in _MOVED:
            raise ModuleNotFoundError(f"{name} is {_MOVED[name]} since version 0.2", name=name)


def tell_of_moves() -> None:
    """From now on, say so."""
    sys.meta_path.append(_MovedNames)
