"""Check the table of docs/faults.md on real processes.

python -m tools.outcomes [--algorithm NAME]... [--column NAME]... [--seconds 4]

Each run lasts some seconds and has one fault, in which a node is lost or joins. The exit code is 1
if an outcome differs from the table. The folders of such runs are kept.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import simcluster
from simcluster.errors import RunError
from simcluster.results import load_run
from tools.outcomes.cases import COLUMNS, DEAD, LAYERED, experiment, fault, table
from tools.outcomes.held import wrong

HIT_FOR_GOOD = [column for column in COLUMNS if column != "short hang"]
"""The columns with faults that change the membership of a run."""


def play(algorithm: str, column: str, word: str, whole_s: float, folder: Path) -> tuple[dict[str, Any], str]:
    """Run one cell of the table. Return (summary, broken promises or "")."""
    hangs = column == "long hang"
    whole_s *= 1.75 if hangs else 1.0
    plan = fault(column, whole_s)
    stop = {"steps": 1_000_000, "time": f"{whole_s} s"}
    kept = {"restored": 20 if algorithm in LAYERED else 100}.get(word, 0)
    # Use a short timeout only for hangs: on a busy machine, even the launcher may be silent for
    # seconds.
    options = {"dead_s": DEAD * whole_s if hangs else 5.0, "max_restarts": int(word == "restored"), "limit_s": 60.0}
    error = None
    try:
        keys = experiment(algorithm, stop, kept) | {"faults": [plan]}
        simcluster.run(keys, backend="sockets", out=folder, options=options, report=False)
    except RunError as failed:
        error = failed
    summary = load_run(folder).summary
    return summary, "; ".join(wrong(word, plan, summary, error, by_time=True))


def told(summary: dict[str, Any]) -> str:
    """Return a line on a run that ended as the table says."""
    parts = [f"{summary['steps']} steps", *(f"{name}: {why}" for name, why in summary.get("lost", {}).items())]
    parts += [f"again from {entry['begins_again']}" for entry in summary.get("restarts", ())]
    return ", ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found = table()
    parser.add_argument("--algorithm", action="append", choices=sorted(found))
    parser.add_argument("--column", action="append", choices=list(COLUMNS))
    parser.add_argument("--seconds", type=float, default=4.0, help="what a run takes if it is not disturbed")
    given = parser.parse_args()
    began_s = time.monotonic()
    tried = 0
    otherwise = 0
    root = Path(tempfile.mkdtemp(prefix="outcomes-"))
    for algorithm, words in found.items():
        for column in given.column or HIT_FOR_GOOD:
            if given.algorithm and algorithm not in given.algorithm:
                continue
            tried += 1
            word, folder = words[column], root / str(tried)
            summary, problems = play(algorithm, column, word, given.seconds, folder)
            otherwise += bool(problems)
            line = f"OTHERWISE: {problems}; see {folder}" if problems else told(summary)
            print(f"{algorithm:18} {column:16} {word:13} {line}", flush=True)
            if not problems:
                shutil.rmtree(folder)
    if not otherwise:
        root.rmdir()
    print(f"{tried - otherwise} of {tried} as the table says, in {time.monotonic() - began_s:.0f} s")
    return 1 if otherwise else 0


if __name__ == "__main__":
    sys.exit(main())
