"""Tries seeds of small runs on real processes, each with random faults and acts from outside.

python -m tools.swarm_real --seed N                             one seed, with its draw and verdict
python -m tools.swarm_real [--first 0] [--seeds 200] [--jobs 2] many; a line for each that breaks an invariant

Outcomes are checked against the promises of docs/faults.md. The exit code is 1 if an invariant is
broken. All files of such a run are kept in runs/swarm-real/seed-N.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial

from tools.swarm_real.draw import draw
from tools.swarm_real.many import tried
from tools.swarm_real.telling import describe, summary, told, told_of_one

say = partial(print, flush=True)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.swarm_real", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    given = parser.parse_args(words)
    if given.seed is not None:
        say("\n".join(describe(draw(given.seed))))
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.seeds)
    began_s, verdicts = time.monotonic(), []
    for verdict in tried(seeds, min(given.jobs, len(seeds))):
        verdicts.append(verdict)
        for line in told(verdict) if given.seed is None else told_of_one(verdict):
            say(line)
    say("\n".join(summary(verdicts, time.monotonic() - began_s)))
    return int(any(verdict.broken for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
