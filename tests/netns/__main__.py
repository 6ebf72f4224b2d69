"""`python -m tests.netns`: every scenario on a real network and in the simulator, and the page that compares them.

This file knows a command line and signals. It must not know what is compared.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from tests.netns.fidelity import compare_all
from tests.netns.hosts import missing
from tests.netns.report import report, table
from tests.netns.scenarios import NETWORKS

PAGE = Path(__file__).parent.parent.parent / "docs" / "fidelity.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.netns", description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--network", action="append", choices=[network.name for network in NETWORKS], help="only these")
    parser.add_argument("--keep", type=Path, help="a folder for run folders and topologies")
    arguments = parser.parse_args()
    if reason := missing():
        print(f"skipped: {reason}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the folder goes, too
    networks = [network for network in NETWORKS if arguments.network in (None, []) or network.name in arguments.network]
    began_s, outcomes = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        for outcome in compare_all(folder, networks, say=lambda words: print(words, flush=True)):
            outcomes.append(outcome)
            print(table([outcome])[-1], flush=True)
        page = report(outcomes, date.today(), time.perf_counter() - began_s)
    arguments.out.write_text(page, encoding="utf-8")
    print(arguments.out)


if __name__ == "__main__":
    main()
