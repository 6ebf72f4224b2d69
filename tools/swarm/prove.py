"""Plants known defects into copies of the library, and reports the first seed that finds each.

python -m tools.swarm.prove [NUMBER...] [--seeds 2000] [--json FILE]

A seed finds a defect if it breaks an invariant with the changed library and none with the unchanged
one. Seeds that cannot reveal the defect are skipped. After a search for all defects, the program
writes their table to docs/history/planted-defects.md. Only child processes import the library,
since each must import its own copy.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tools.mutants.of_faults import PLANTED
from tools.mutants.planted import Planted
from tools.mutants.trial import copy_library, import_heavy
from tools.swarm.memory import in_memory
from tools.swarm.page import write_table

SEEDS: Final = 5000
LIMIT_S: Final = 900.0
"""The limit on the search for one defect. Most searches take some seconds."""


@dataclass
class Found:
    """The result for one defect: the *seed* that finds it, and the *invariant* that the seed
    breaks.

    *tried* is the number of seeds that were not skipped.
    """

    number: str
    seed: int | None = None
    invariant: str = ""
    how: str = ""
    tried: int = 0
    took_s: float = 0.0
    trouble: str = ""


class Judge:
    """A process with the unchanged library, which tells whether a seed passes.

    The searching processes, which are siblings, ask it through pipes.
    """

    def __init__(self) -> None:
        asked, self._ask = os.pipe()
        self._answers, answer = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            try:
                _serve(asked, answer)
            finally:
                os._exit(0)

    def passes(self, seed: int) -> bool:
        os.write(self._ask, b"%12d" % seed)
        return os.read(self._answers, 1) == b"1"

    def end(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _serve(asked: int, answer: int) -> None:
    trial = importlib.import_module("tools.swarm.trial")
    with tempfile.TemporaryDirectory(prefix="swarm-", dir=in_memory()) as place:
        while question := os.read(asked, 12):
            verdict = trial.try_seed(int(question), Path(place))
            os.write(answer, b"0" if verdict.broken else b"1")


def prove(planted: Planted, seeds: int, judge: Judge, limit_s: float) -> Found:
    """Find the first of *seeds* seeds that fails with *planted* and passes with the unchanged
    library.
    """
    began_s, number = time.monotonic(), planted.mutant.number
    with tempfile.TemporaryDirectory(prefix="swarm-", dir=in_memory()) as folder:
        place = Path(folder)
        try:
            copy_library(place, planted.mutant)
        except ValueError as error:
            return Found(number, trouble=str(error))
        pid = os.fork()
        if not pid:
            try:
                (place / "found.json").write_text(json.dumps(asdict(_search(place, planted, seeds, judge))))
            except BaseException:
                with suppress(OSError):
                    (place / "trouble.txt").write_text(traceback.format_exc())
            finally:
                os._exit(0)
        found = _awaited(pid, place, number, limit_s)
    found.took_s = time.monotonic() - began_s
    return found


def _awaited(pid: int, place: Path, number: str, limit_s: float) -> Found:
    began_s = time.monotonic()
    while not os.waitpid(pid, os.WNOHANG)[0]:
        time.sleep(0.02)
        if time.monotonic() - began_s > limit_s:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return Found(number, trouble=f"not found within {limit_s:g} s")
    if (place / "found.json").is_file():
        return Found(**json.loads((place / "found.json").read_text()))
    trouble = place / "trouble.txt"
    return Found(number, trouble=trouble.read_text() if trouble.is_file() else "its process died")


def needs_of(case: Any) -> dict[str, bool]:
    """Return need of a planted defect -> whether *case* meets it."""
    workload, topology = case.document["workload"], case.document["topology"]
    return {
        "slope": case.is_sloped,
        "checkpoint": "checkpoint" in case.document,
        "draws": str(workload.get("path")).endswith(":drawing"),
        "running mean": case.is_normed,
        "sizes": isinstance(workload.get("batch_size"), dict),
        "parts": topology["name"] == "in-parts",
    }


def _search(place: Path, planted: Planted, seeds: int, judge: Judge) -> Found:
    """Search in a child process, which imports the changed copy in *place*.

    Return the first seed that only the defect breaks.
    """
    sys.path[:0] = [str(place), str(place / "backends")]
    library = importlib.import_module("simcluster")
    assert str(library.__file__).startswith(str(place)), library.__file__
    trial, draw = importlib.import_module("tools.swarm.trial"), importlib.import_module("tools.swarm.draw.case")
    faults = importlib.import_module("tools.swarm.draw.faults")
    tried = 0
    for seed in range(seeds):
        case = draw.draw_case(seed)
        has = needs_of(case)
        if planted.algorithms and case.algorithm not in planted.algorithms:
            continue
        if not all(has[need] for need in planted.needs):
            continue
        if planted.kinds and not set(planted.kinds) & set(faults.kinds_of(case)):
            continue
        tried += 1
        verdict = trial.try_seed(seed, place / "runs")
        if verdict.broken and judge.passes(seed):
            name, how = verdict.broken[0]
            return Found(planted.mutant.number, seed, name, how, tried)
    return Found(planted.mutant.number, tried=tried)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.swarm.prove", description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("numbers", nargs="*")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument(
        "--json", type=Path, help="where what is found is kept; a defect that is there already is not tried"
    )
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for one defect")
    given = parser.parse_args()
    import_heavy()
    known = json.loads(given.json.read_text()) if given.json is not None and given.json.is_file() else {}
    judge, missed = Judge(), 0
    for planted in PLANTED:
        number = planted.mutant.number
        if given.numbers and number not in given.numbers:
            continue
        if number in known and known[number]["seed"] is not None and not given.numbers:
            continue
        found = prove(planted, given.seeds, judge, given.limit)
        missed += found.seed is None
        known[number] = asdict(found)
        how = f"seed {found.seed}: {found.invariant}: {' '.join(found.how.split())[:120]}"
        line = how if found.seed is not None else f"NOT FOUND {found.trouble}"
        print(
            f"{number:>3} {planted.mutant.defect[:60]:60} {line} ({found.tried} tried, {found.took_s:.0f} s)",
            flush=True,
        )
        if given.json is not None:
            given.json.write_text(json.dumps(known, indent=1))
    judge.end()
    if not given.numbers:
        write_table(PLANTED, known)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
