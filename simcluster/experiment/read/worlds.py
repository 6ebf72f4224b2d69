"""Read the worlds of an experiment: functions of the user, each with its settings."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

from simcluster.documents.own_state import loaded_apart
from simcluster.documents.reading import DocumentReading
from simcluster.experiment.read.blocks import read_function
from simcluster.worlds import PlannedWorld, check_world

KEY = "world"
MOST_WORLDS = 100

BACKENDS = ("sim", "sockets")


def read_worlds(reading: DocumentReading, seed: int, backend: str) -> tuple[tuple[PlannedWorld, ...], dict[str, Any]]:
    """Return (the worlds of the document, the resolved document's key for them).

    Their files are loaded again, so that no module keeps the state of an earlier run.
    """
    data = reading.document.data
    given = data.get(KEY)
    if given is None or given == []:
        return (), {}
    if backend not in BACKENDS:
        reading.bad(("backend",), f"{' or '.join(BACKENDS)} with a world", backend)
    if isinstance(given, list) and len(given) > MOST_WORLDS:
        reading.bad((KEY,), f"at most {MOST_WORLDS} worlds", f"{len(given)}")
        return (), {}
    paths: list[tuple[str | int, ...]] = [(KEY, i) for i in range(len(given))] if isinstance(given, list) else [(KEY,)]
    worlds, blocks = [], []
    names = Counter[str]()
    for path in paths:
        function, block, settings = read_function(reading, path, {}, seed)
        blocks.append(block)
        if function is None:
            continue
        reading.collect(partial(check_world, function, KEY))
        names[function.__name__] += 1
        number = names[function.__name__]
        worlds.append(PlannedWorld(function.__name__ + (f" {number}" if number > 1 else ""), function, settings))
    if all("path" in block for block in blocks):
        functions, _ = loaded_apart([block["path"] for block in blocks], seed)
        worlds = [replace(world, function=function) for world, function in zip(worlds, functions, strict=True)]
    return tuple(worlds), {KEY: blocks if isinstance(given, list) else blocks[0]}
