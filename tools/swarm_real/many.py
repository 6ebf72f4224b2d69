"""Many seeds, some at once, each in a process that keeps its launcher."""

from __future__ import annotations

import atexit
import multiprocessing
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

from tools.swarm_real.trial import Launchers, Verdict, try_seed

KEPT: Final = Path("runs/swarm-real")


def tried(seeds: Sequence[int], jobs: int) -> Iterator[Verdict]:
    """Verdicts on *seeds*, in their order."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(keeping, seeds)


def keeping(seed: int) -> Verdict:
    """The verdict on *seed*; its folder is kept if it breaks anything."""
    place = Path(tempfile.mkdtemp(prefix=f"swarm-real-{seed}-"))
    try:
        verdict = try_seed(seed, place, _launchers())
        if verdict.broken:
            shutil.rmtree(KEPT / f"seed-{seed}", ignore_errors=True)
            shutil.copytree(place, KEPT / f"seed-{seed}")
        return verdict
    finally:
        shutil.rmtree(place, ignore_errors=True)


@cache
def _launchers() -> Launchers:
    """Those of this process."""
    launchers = Launchers()
    atexit.register(launchers.close)
    return launchers
