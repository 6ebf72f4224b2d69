"""python -m tests.swarm --seed N                     one seed, with all that it drew
python -m tests.swarm [--first 0] [--seeds 5000]   many, one line for each that breaks an invariant

Exit code 1 if an invariant is broken.
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.swarm.telling import headline, told
from tests.swarm.trial import try_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.swarm", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one, and say everything")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=5000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swarm-", dir=in_memory()) as place:
        if given.seed is not None:
            verdict = try_seed(given.seed, Path(place))
            print("\n".join(told(verdict)))
            return int(bool(verdict.broken))
        return many(range(given.first, given.first + given.seeds), Path(place))


def in_memory() -> str | None:
    """A folder whose files cost no disk: what is tried here is not the disk."""
    shared = Path("/dev/shm")
    return str(shared) if os.access(shared, os.W_OK) else None


def many(seeds: range, place: Path) -> int:
    began_s, virtual_s, refused, broken = time.monotonic(), 0.0, 0, 0
    counts: collections.Counter[str] = collections.Counter()
    for seed in seeds:
        verdict = try_seed(seed, place)
        virtual_s += verdict.virtual_s
        refused += bool(verdict.refused)
        broken += bool(verdict.broken)
        counts.update(set(verdict.names))
        if verdict.broken:
            print(headline(verdict), flush=True)
    took_s = time.monotonic() - began_s
    for name, count in counts.most_common():
        print(f"{count:6}  {name}")
    rate = f"{len(seeds) / took_s:.1f} seeds/s, {virtual_s / took_s:.0f} simulated s per s"
    print(f"{len(seeds)} seeds, {refused} refused, {broken} break an invariant; {took_s:.0f} s, {rate}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
