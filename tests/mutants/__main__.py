"""`python -m tests.mutants`: tries every mutant and writes docs/mutants.md; `--json` prints what is found instead."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from tests.mutants.defects import MUTANTS
from tests.mutants.table import FILE, page
from tests.mutants.trial import try_all

if __name__ == "__main__":
    untouched = "--untouched" in sys.argv
    found = try_all(MUTANTS, mutated=not untouched)
    if "--json" in sys.argv:
        print(json.dumps([asdict(one) for one in found]))
        raise SystemExit
    for mutant, one in zip(MUTANTS, found, strict=True):
        if one.caught == untouched or one.trouble:
            print(f"{mutant.number}: {mutant.defect}: {one.trouble or one.failed or 'NOT CAUGHT'}")
    if not untouched:
        FILE.write_text(page(MUTANTS, found), encoding="utf-8")
        print(f"{sum(one.caught for one in found)} of {len(found)} caught; {FILE}")
