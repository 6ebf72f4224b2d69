"""`python -m tests.mutants`: tries every mutant and writes docs/mutants.md; `--json` prints what is found instead."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from tests.mutants.defects import MUTANTS
from tests.mutants.table import FILE, page
from tests.mutants.trial import try_all

if __name__ == "__main__":
    found = try_all(MUTANTS)
    if "--json" in sys.argv:
        print(json.dumps([asdict(one) for one in found]))
        raise SystemExit
    for mutant, one in zip(MUTANTS, found, strict=True):
        if not one.caught:
            print(f"{mutant.number}: {mutant.defect}: {one.trouble or 'NOT CAUGHT'}")
    FILE.write_text(page(MUTANTS, found), encoding="utf-8")
    print(f"{sum(one.caught for one in found)} of {len(found)} caught; {FILE}")
    raise SystemExit(0 if all(one.caught for one in found) else 1)
