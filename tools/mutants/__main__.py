"""`python -m tools.mutants`: tries every mutant and writes docs/mutants.md.

With `--json` it tries one mutant for each check, and prints what is found instead.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from tools.mutants.defects import FIRST, MUTANTS
from tools.mutants.table import FILE, page
from tools.mutants.trial import try_all

if __name__ == "__main__":
    if "--json" in sys.argv:
        print(json.dumps([asdict(one) for one in try_all(FIRST)]))
        raise SystemExit
    found = try_all(MUTANTS)
    for mutant, one in zip(MUTANTS, found, strict=True):
        if not one.caught:
            print(f"{mutant.number}: {mutant.defect}: {one.trouble or 'NOT CAUGHT'}")
    FILE.write_text(page(MUTANTS, found), encoding="utf-8")
    print(f"{sum(one.caught for one in found)} of {len(found)} caught; {FILE}")
    raise SystemExit(0 if all(one.caught for one in found) else 1)
