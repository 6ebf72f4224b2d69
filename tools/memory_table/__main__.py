"""`python -m tools.memory_table`: measure the memory growth of real processes, for docs/memory.md.

Each measurement is stored in --keep, so separate calls can measure parts of the table. Then
--report writes the page from the stored measurements. The exit code is 1 if a process grows by more
than 1.3 times the prediction (1.2 times in inference), or if rank 0 grows with the number of
evaluations.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.support.root import ROOT
from tools.memory_table.answering import answering_table, held
from tools.memory_table.cases import ALGORITHMS, EVALUATIONS, SIZES, grown, over_evaluations
from tools.memory_table.kept import Kept
from tools.memory_table.report import flat_words, is_flat, report, table

PAGE = ROOT / "docs" / "memory.md"
KEPT = ROOT / "runs" / "memory"


def main() -> int:
    given = _arguments()
    kept = Kept(given.keep)
    is_part = given.algorithm or given.size or given.evaluations or given.inference
    if not is_part and not given.report:
        kept.forget()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        if not given.report:
            apart = given.evaluations or given.inference
            sizes = given.size or ([] if apart and not given.algorithm else list(SIZES))
            for size in sizes:
                for algorithm in given.algorithm or ALGORITHMS:
                    rows = grown(algorithm, size, folder)
                    kept.rows(algorithm, size, rows)
                    print("\n".join(table(rows)), flush=True)
            if given.evaluations or not is_part:
                for count in EVALUATIONS:
                    kept.evaluated(count, over_evaluations(count, folder))
            if given.inference or not is_part:
                kept.answered(held(Path(scratch)))
    rows = kept.all_rows()
    flat = kept.flat()
    answered = kept.all_answered()
    if answered:
        print("\n".join(answering_table(answered)))
    if flat is not None:
        print(flat_words(flat))
    if given.report or not is_part:
        given.out.write_text(report(rows, flat, answered, kept.missing()), encoding="utf-8")
    return 0 if all(row.is_within for row in (*rows, *answered)) and (flat is None or is_flat(flat)) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", action="append", choices=list(ALGORITHMS), help="only this one; may be repeated")
    parser.add_argument("--size", action="append", choices=list(SIZES), help="only this size; may be repeated")
    parser.add_argument(
        "--evaluations", action="store_true", help="only the runs with evaluations, besides those above"
    )
    parser.add_argument("--inference", action="store_true", help="only the answers of SmolLM2, besides those above")
    parser.add_argument("--report", action="store_true", help="measure nothing, write the page from what is kept")
    parser.add_argument("--keep", type=Path, default=KEPT, help="folder of what was measured")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
