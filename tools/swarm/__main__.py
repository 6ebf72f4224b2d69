"""Tries seeds of faults in the simulator, and checks the promises of docs/faults.md.

python -m tools.swarm --seed N                    one seed, with its draw and verdict; --shrink shrinks its case
python -m tools.swarm [--first 0] [--seeds 5000]  many; a line for each that breaks an invariant, the first ones shrunk
python -m tools.swarm --soak 20000 [--jobs 2]     many, from where the last soak stopped, and a check of all marks.
                                                  After a complete soak, the next seeds; --first chooses others

The exit code is 1 if an invariant is broken, if a run has another result in another process, or if
a soak misses a mark. Shrunk failing cases are written to runs/swarm.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from tools.swarm.memory import in_memory
from tools.swarm.soak import Totals, saved, soak_in_parallel, summary, write_minimal
from tools.swarm.telling import told
from tools.swarm.trial import try_seed

FOLDER: Final = Path("runs/swarm")
say = partial(print, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.swarm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int)
    parser.add_argument("--shrink", action="store_true", help="with --seed: make it small")
    parser.add_argument("--first", type=int)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seeds", type=int, default=5000)
    parser.add_argument("--soak", type=int, help="seeds in all, over as many calls as it takes")
    parser.add_argument("--as-found", action="store_true", help="many: do not make what fails small")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swarm-", dir=in_memory()) as place:
        if given.seed is not None:
            return one(given.seed, Path(place), shrinks=given.shrink)
        minimal = None if given.as_found else FOLDER
        file = FOLDER / "soak.json" if given.soak else None
        first = given.first or 0
        totals = saved(file, given.first, given.soak) if file is not None else Totals(first, first)
        until = totals.first + (given.soak or given.seeds)
        try:
            soak_in_parallel(totals, until, Path(place), say, file, minimal, given.jobs)
        except KeyboardInterrupt:
            say(f"stopped; seeds {totals.first} to {totals.next - 1} are done")
    say("\n".join(summary(totals)))
    if totals.next < until:
        return 1
    if given.soak and totals.missing:
        say("\n".join(["marks that were never reached:", *(f"    {', '.join(mark)}" for mark in totals.missing)]))
    return int(bool(totals.broken or totals.otherwise or (given.soak and totals.missing)))


def one(seed: int, place: Path, *, shrinks: bool) -> int:
    verdict = try_seed(seed, place)
    say("\n".join(told(verdict)))
    if verdict.broken and shrinks:
        write_minimal(verdict, place, FOLDER, say)
    return int(bool(verdict.broken))


if __name__ == "__main__":
    sys.exit(main())
