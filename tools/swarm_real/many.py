"""Trials of many seeds in concurrent processes. Each process keeps its launchers."""

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
    """Yield the verdicts on *seeds* in the same order."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(keeping, seeds)


def keeping(seed: int) -> Verdict:
    """Return the verdict on *seed*. Keep its folder if an invariant is broken."""
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
    """Return this process's launchers. They are closed when it exits."""
    launchers = Launchers()
    atexit.register(launchers.close)
    return launchers
