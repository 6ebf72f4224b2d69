"""Replays seeds in another process with another hash seed, and reports seeds with other results.

python -m tools.swarm.twice SEED...    prints the fingerprints of each seed's runs, as JSON
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.root import ROOT
from tools.swarm.memory import in_memory
from tools.swarm.play import Played
from tools.swarm.trial import Verdict, try_seed

EVERY: Final = 10
"""One seed in this many is replayed."""
SAME: Final = (
    "status",
    "elapsed_s",
    "steps",
    "trace_sha256",
    "weights_sha256",
    "samples",
    "lost",
    "messages_sent",
    "error",
)
"""Keys of a summary that must agree."""


def fingerprint(verdict: Verdict) -> list[str]:
    """Return a digest of events, virtual times, weights and counts for each run of *verdict*."""
    return [_digest(run) for run in verdict.runs] or [verdict.refused]


def in_another_process(seeds: Sequence[int]) -> dict[int, list[str]]:
    """Return seed -> its fingerprint from a process with another hash seed."""
    if not seeds:
        return {}
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    command = [sys.executable, "-m", "tools.swarm.twice", *map(str, seeds)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return {int(seed): digests for seed, digests in found.items()}


def apart(here: Mapping[int, list[str]]) -> Iterator[str]:
    """Yield a line for each seed that has another fingerprint in another process than *here*."""
    elsewhere = in_another_process(sorted(here))
    for seed, digests in sorted(here.items()):
        if digests != elsewhere[seed]:
            runs = [
                number for number, pair in enumerate(zip(digests, elsewhere[seed], strict=False)) if len(set(pair)) > 1
            ]
            yield f"seed {seed}: runs {runs} come out otherwise in another process"


def _digest(run: Played) -> str:
    told: dict[str, Any] = {name: run.summary.get(name) for name in SAME}
    told["error"] = type(run.error).__name__
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="swarm-", dir=in_memory()) as place:
        found = {seed: fingerprint(try_seed(int(seed), Path(place))) for seed in sys.argv[1:]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
