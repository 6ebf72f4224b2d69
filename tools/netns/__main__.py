"""`python -m tools.netns`: compare all scenarios on a real network with their simulations."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from datetime import date
from pathlib import Path

from tests.support.root import ROOT
from tools.netns.fidelity import REPEATS, Kept, compare_all
from tools.netns.hosts import missing
from tools.netns.load import LOOPS, awake, background_load
from tools.netns.report import COLUMNS, report, row, summary
from tools.netns.scenarios import ALGORITHMS, NETWORKS, SIZES
from tools.tables import write

PAGE = ROOT / "docs" / "fidelity.md"
KEPT = ROOT / "runs" / "fidelity"
IDLE, BUSY = "idle", "busy"
CONDITIONS = {
    IDLE: ("Without a background load", "fidelity-idle"),
    BUSY: (f"With {LOOPS} busy loops in the background", "fidelity-busy"),
}


def main() -> None:
    arguments = _arguments()
    if not arguments.report:
        if reason := missing():
            print(f"skipped: {reason}")
            return
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that hosts and loops end, too
        _measure(arguments)
    if arguments.report or not _is_part(arguments):
        _write(arguments.keep, arguments.out)


def _measure(arguments: argparse.Namespace) -> None:
    """Run the scenarios that *arguments* select, and store the results."""
    condition = BUSY if arguments.busy else IDLE
    kept = Kept(arguments.keep / condition)
    if arguments.fresh and kept.folder.is_dir():
        shutil.rmtree(kept.folder)
    kept.folder.mkdir(parents=True, exist_ok=True)
    if kept.notes:
        _say(f"resuming: runs in {kept.folder} are not made again; --fresh starts over")
    networks = [network for network in NETWORKS if network.name in (arguments.network or [network.name])]
    algorithms = [name for name in ALGORITHMS if name in (arguments.algorithm or ALGORITHMS)]
    sizes = [size for size in SIZES if size.words in (arguments.size or [size.words])]
    began_s = time.perf_counter()
    before_s = kept.notes.get("condition", {}).get("took_s", 0.0)
    outcomes = []
    with background_load() if arguments.busy else awake():
        found = compare_all(
            kept.folder, networks, algorithms, sizes, arguments.repeats, _say, choosy=not arguments.busy
        )
        for outcome in found:
            outcomes.append(outcome)
            _say(", ".join(row(outcome)))
            took_s = before_s + time.perf_counter() - began_s
            kept.note("condition", {"day": date.today().isoformat(), "took_s": took_s, "busy": arguments.busy})
    _say(summary(outcomes))


def _write(keep: Path, page: Path) -> None:
    """Write the page, and a table for each condition with results in *keep*."""
    conditions = {CONDITIONS[name]: Kept(keep / name) for name in CONDITIONS if Kept(keep / name).outcomes()}
    if not conditions:
        sys.exit(f"nothing to report in {keep}: run python -m tools.netns first, and with --busy")
    for (_, table), kept in conditions.items():
        write(page.parent / "tables" / f"{table}.csv", [COLUMNS, *map(row, kept.outcomes())])
    page.write_text(report(conditions), encoding="utf-8")
    print(page)


def _is_part(arguments: argparse.Namespace) -> bool:
    return bool(arguments.network or arguments.algorithm or arguments.size)


def _say(words: str) -> None:
    print(words, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.netns", description=__doc__)
    parser.add_argument("--busy", action="store_true", help=f"with {LOOPS} busy loops in the background")
    parser.add_argument("--report", action="store_true", help="measure nothing, write the page of earlier results")
    parser.add_argument("--fresh", action="store_true", help="remove earlier results of this condition, and start over")
    parser.add_argument("--network", action="append", choices=[network.name for network in NETWORKS], help="only these")
    parser.add_argument("--algorithm", action="append", choices=ALGORITHMS, help="only these")
    parser.add_argument("--size", action="append", choices=[size.words for size in SIZES], help="only these")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="measured runs of each scenario")
    parser.add_argument("--keep", type=Path, default=KEPT, help="results in this directory are not made again")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
