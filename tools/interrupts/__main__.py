"""`make interrupts`: interrupt commands at random moments under load, and print broken promises."""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tools.interrupts.processes import busy
from tools.interrupts.trial import Found, run_trial

BACKENDS = ("sim", "sockets")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.interrupts", description=__doc__)
    parser.add_argument("--trials", type=int, default=200, help="of each backend")
    parser.add_argument("--load", type=int, default=4, help="busy loops meanwhile")
    parser.add_argument("--backend", choices=[*BACKENDS, "torch", "both"], default="both")
    parser.add_argument("--seed", type=int, default=0, help="of the first trial; the others follow")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that trials clean up
    backends = BACKENDS if arguments.backend == "both" else (arguments.backend,)
    found: list[Found] = []
    began_s = time.monotonic()
    with busy(arguments.load):
        for seed in range(arguments.seed, arguments.seed + arguments.trials):
            for backend in backends:
                found.append(run_trial(seed, backend))
                _print(found[-1], backend, arguments.load)
    print(table(found))
    failed = sum(bool(one.problems) for one in found)
    took_s = time.monotonic() - began_s
    print(
        f"{len(found)} trials under a load of {arguments.load}, {failed} failed; "
        f"{sum(one.early for one in found)} drawn again; {took_s / len(found):.1f} s per trial"
    )
    if failed:
        raise SystemExit(1)


def _print(found: Found, backend: str, load: int) -> None:
    if found.problems:
        replay = f"python -m tools.interrupts --backend {backend} --seed {found.case.seed} --trials 1 --load {load}"
        print(f"FAILED {replay}   # {found.case.words()}: {'; '.join(found.problems)}", flush=True)
    else:
        words = found.case.words()
        print(f"{found.case.seed}: {words}: {found.ended_after_s:.2f} s, {found.took_s:.1f} s in all", flush=True)


def table(found: Sequence[Found]) -> str:
    """Return a table by backend, command and moment: trials, failures, and seconds until
    the end.
    """
    kinds = Counter((one.case.backend, one.case.command, one.case.moment) for one in found)
    lines = ["| backend | command | moment | trials | failed | s to the end: median | most |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for kind, count in sorted(kinds.items()):
        same = [one for one in found if (one.case.backend, one.case.command, one.case.moment) == kind]
        ended_s = [one.ended_after_s for one in same]
        failed = sum(bool(one.problems) for one in same)
        lines.append(
            f"| {' | '.join(kind)} | {count} | {failed} | {statistics.median(ended_s):.2f} | {max(ended_s):.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
