"""The swarm's cases under random worlds: `python -m tools.swarm.worlds --first 0 --seeds 300`.

A world that only takes time leaves the weights of an exact algorithm as they are, to the bit. A violent one, in every
third seed, ends the run well or with a loss. Every tenth seed runs twice, to the same trace.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from simcluster.errors import NobodyLeft, PeerLost
from tools.swarm.case import HERE, Case
from tools.swarm.draw.case import draw_case
from tools.swarm.play import Played, is_refused, play
from tools.swarm.promise import is_exact

STORMY = f"{HERE}/stormy.py:stormy"
EVENTS = 15
"""The mean number of acts in the time of an undisturbed run."""


def broken(seed: int, place: Path) -> Iterator[str]:
    """Yield how the run of *seed* under a world breaks a promise; "refused" if the case is no valid one."""
    drawn = draw_case(seed)
    options = {key: value for key, value in drawn.options.items() if key != "max_restarts"}
    case = replace(drawn, options=options)
    before = play(case, place / "undisturbed")
    violent = seed % 3 == 2
    mean_s = (before.record.elapsed_s if before.record is not None else 0.0) / EVENTS
    stormy = case.with_document(world={"path": STORMY, "mean_s": mean_s or 1e-3, "violent": violent})
    after = play(stormy, place / "stormy")
    if is_refused(before) or is_refused(after) or before.error is not None:
        yield "refused"
        return
    yield from _outcome(case, before, after, violent=violent)
    if seed % 10 == 0:
        again = play(stormy, place / "again")
        if again.summary.get("trace_sha256") != after.summary.get("trace_sha256"):
            yield "another trace in a second run"


def _outcome(case: Case, before: Played, after: Played, *, violent: bool) -> Iterator[str]:
    if after.error is not None and not (violent and isinstance(after.error, (PeerLost, NobodyLeft))):
        yield f"{type(after.error).__name__}: {after.error}"
    elif after.counted.said:
        yield f"logged: {after.counted.said[0]}"
    if after.error is None and after.lost and not violent:
        yield f"lost {after.lost}"
    hit = {row["target"] for row in after.happened}
    if strange := set(after.lost) - hit:
        yield f"lost {strange}, which the world had not hit"
    in_time = "time" not in case.document["stop"]
    if after.error is None and not violent and in_time and is_exact(case):
        digests = [played.summary["weights_sha256"] for played in (before, after)]
        if digests[0] != digests[1]:
            yield "other weights than the undisturbed run"


def main(arguments: Sequence[str]) -> int:
    """Try the seeds in *arguments*; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.swarm.worlds", description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=300)
    given = parser.parse_args(arguments)
    tried = bad = 0
    with TemporaryDirectory() as place:
        for seed in range(given.first, given.first + given.seeds):
            found = list(broken(seed, Path(place)))
            tried += found != ["refused"]
            for how in found if found != ["refused"] else ():
                bad += 1
                print(f"seed {seed}: {how}", flush=True)
    print(f"{tried} seeds with a world, {bad} promises broken")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
