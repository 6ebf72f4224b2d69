"""`python -m tools.mutants`: try every mutant, and write the table of docs/mutants.md.

With `--json`, try only one mutant per check, and print the results as JSON.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from tools.mutants.defects import FIRST, MUTANTS
from tools.mutants.table import COLUMNS, FILE, row
from tools.mutants.trial import try_all
from tools.tables import write

if __name__ == "__main__":
    if "--json" in sys.argv:
        print(json.dumps([asdict(one) for one in try_all(FIRST)]))
        raise SystemExit
    found = try_all(MUTANTS)
    for mutant, one in zip(MUTANTS, found, strict=True):
        if not one.caught:
            print(f"{mutant.number}: {mutant.defect}: {one.trouble or 'NOT CAUGHT'}")
    write(FILE, [COLUMNS, *map(row, MUTANTS, found)])
    print(f"{sum(one.caught for one in found)} of {len(found)} caught; {FILE}")
    raise SystemExit(0 if all(one.caught for one in found) else 1)
