"""`python -m tests.memory_table`: real processes and what they grow by, as a table in docs/memory.md.

Exit code 1 if a process grows by more than 1.3 times what was predicted, or if rank 0 grows over evaluations.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.memory_table.cases import ALGORITHMS, EVALUATIONS, SIZES, Row, grown, over_evaluations
from tests.memory_table.report import flat_words, is_flat, report, table
from tests.support.root import ROOT

PAGE = ROOT / "docs" / "memory.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", action="append", choices=list(ALGORITHMS), help="only this one; may be repeated")
    parser.add_argument("--size", action="append", choices=list(SIZES), help="only this size; may be repeated")
    parser.add_argument("--no-evaluations", action="store_true", help="without the runs with evaluations")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page, written if all was measured")
    given = parser.parse_args()
    rows: list[Row] = []
    flat: tuple[int, int] | None = None
    with tempfile.TemporaryDirectory() as scratch:
        for size in given.size or SIZES:
            for algorithm in given.algorithm or ALGORITHMS:
                found = grown(algorithm, size, Path(scratch) / "run")
                rows += found
                print("\n".join(table(found)), flush=True)
        if not given.no_evaluations:
            few, many = (over_evaluations(count, Path(scratch) / "run") for count in EVALUATIONS)
            flat = few, many
            print(flat_words(flat), flush=True)
    if flat is not None and not given.algorithm and not given.size:
        given.out.write_text(report(rows, flat), encoding="utf-8")
    return 0 if all(row.is_within for row in rows) and (flat is None or is_flat(flat)) else 1


if __name__ == "__main__":
    sys.exit(main())
