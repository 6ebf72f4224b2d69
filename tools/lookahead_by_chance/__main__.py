"""Compare random programs with computed schedules and message by message, seed by seed.

python -m tools.lookahead_by_chance FIRST COUNT      run COUNT seeds; print each difference
python -m tools.lookahead_by_chance FIRST --shrink   run one seed, and shrink its program
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial

from tools.lookahead_by_chance.compare import compare
from tools.lookahead_by_chance.draw import draw
from tools.lookahead_by_chance.smaller import shrink

say = partial(print, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.lookahead_by_chance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--shrink", action="store_true", help="make the program of FIRST small")
    given = parser.parse_args()
    return one(given.first) if given.shrink else many(given.first, given.count)


def many(first: int, count: int) -> int:
    start_s = time.process_time()
    computed = 0
    different = 0
    for seed in range(first, first + count):
        found = compare(draw(seed))
        computed += found.skipped > 0
        different += bool(found.differences)
        for name, where in found.differences.items():
            say(f"{seed} {name}: {where}")
    cpu_s = time.process_time() - start_s
    say(f"{count} programs, {computed} with computed rounds, {different} with differences, {cpu_s:.0f} s of CPU time")
    return int(different > 0)


def one(seed: int) -> int:
    program = draw(seed)
    if differences := compare(program).differences:
        program = shrink(program, next(iter(differences)))
        differences = compare(program).differences
    say(program)
    for name, where in differences.items():
        say(f"{name}: {where}")
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
