"""What there is to name in files and commands, each with a few words: for `simcluster list` and shell completion.

This file knows the tables of names. It must not know what any of them does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

KINDS = ("algorithms", "workloads", "topologies", "experiments", "links", "devices", "backends")


def catalogue(kind: str) -> dict[str, str]:
    """Name -> a few words, for one of KINDS (or "kinds" itself), sorted by name."""
    if kind == "kinds":
        return dict.fromkeys(KINDS, "")
    if kind == "backends":
        return {"sim": "virtual time, one process", "sockets": "TCP between processes"}
    if kind in ("topologies", "experiments"):
        from simcluster.shipped import shipped_names

        return dict.fromkeys(shipped_names("topologies" if kind == "topologies" else "experiments"), "")
    if kind in ("links", "devices"):
        from simcluster.topology.presets import DEVICES, LINKS

        presets: Mapping[str, Any] = LINKS if kind == "links" else DEVICES
        return {name: str(preset) for name, preset in sorted(presets.items())}
    return {name: _in_words(function) for name, function in sorted(_functions(kind).items())}


def _functions(kind: str) -> Mapping[str, Callable[..., Any]]:
    if kind == "algorithms":
        from simcluster.algorithms import ALGORITHMS

        return ALGORITHMS
    from simcluster.workloads import WORKLOADS

    return WORKLOADS


def _in_words(function: Callable[..., Any]) -> str:
    """The settings with their defaults, then the first line of the docstring."""
    from simcluster.experiment.settings import settings_of

    settings = ", ".join(f"{s.name}={s.default!r}" if not s.required else s.name for s in settings_of(function))
    text = inspect.getdoc(function)
    return f"({settings})  {text.splitlines()[0]}" if text else f"({settings})"
