"""Plants known defects into copies of the sockets backend, and reports the first seed that finds
each.

python -m tools.swarm_real.prove [NUMBER...] [--seeds 100]

A seed finds a defect if it breaks an invariant with the changed backend and none with the unchanged
one. Seeds without an event of a kind that can reveal the defect are skipped. The exit code is 1 if
a defect is not found. After a search for all defects, the program writes their table to
docs/history/planted-defects.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tools.mutants.planted import Planted
from tools.mutants.trial import ROOT, copy_library
from tools.swarm.page import write_table
from tools.swarm_real.defects import PLANTED
from tools.swarm_real.draw import draw
from tools.swarm_real.trial import Launchers, try_seed

HEADING = "## Planted into the sockets backend\n"
say = partial(print, flush=True)


@dataclass
class Search:
    """A search for planted defects among the first *seeds* seeds.

    *sound* runs the unchanged library. The runs' files are in *place*.
    """

    seeds: int
    sound: Launchers
    place: Path

    def find(self, planted: Planted) -> dict[str, Any]:
        """Return the first seed that finds *planted*, the invariant that it breaks, and the seeds
        tried.
        """
        library = self.place / planted.mutant.number
        library.mkdir()
        copy_library(library, planted.mutant)
        for programs in ("tests", "tools"):
            (library / programs).symlink_to(ROOT / programs)
        changed, tried = Launchers(library), 0
        try:
            for seed in self._seeds(planted):
                tried += 1
                verdict = try_seed(seed, self.place / "run", changed)
                if verdict.broken and not try_seed(seed, self.place / "run", self.sound).broken:
                    name, how = verdict.broken[0]
                    return {"seed": seed, "invariant": name, "how": how, "tried": tried}
        finally:
            changed.close()
        return {"seed": None, "tried": tried}

    def _seeds(self, planted: Planted) -> Iterator[int]:
        for seed in range(self.seeds):
            drawn = draw(seed)
            kinds = {fault["kind"] for fault in drawn.case.faults} | {act.kind for act in drawn.acts}
            if not planted.kinds or kinds & set(planted.kinds):
                yield seed


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.swarm_real.prove", description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("numbers", nargs="*")
    parser.add_argument("--seeds", type=int, default=100)
    given = parser.parse_args(words)
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="swarm-real-") as folder:
        search = Search(given.seeds, Launchers(), Path(folder))
        for planted in PLANTED:
            number = planted.mutant.number
            if given.numbers and number not in given.numbers:
                continue
            one = found[number] = search.find(planted)
            how = f"seed {one['seed']}: {one.get('invariant')}: {' '.join(one.get('how', '').split())[:120]}"
            said = "NOT FOUND" if one["seed"] is None else how
            say(f"{number:>3} {planted.mutant.defect:50} {said} ({one['tried']} tried)")
        search.sound.close()
    if not given.numbers:
        write_table(PLANTED, found, HEADING)
    return int(any(one["seed"] is None for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
