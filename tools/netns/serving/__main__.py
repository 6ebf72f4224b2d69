"""`python -m tools.netns.serving`: compare all loads on real networks with their simulations."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import fmean, median

from simcluster.topology import load
from tests.support.root import ROOT
from tests.support.tiny_models import model_of, write_folder
from tools.netns.hosts import hosts_of, missing
from tools.netns.serving.bench import Bench, Times
from tools.netns.serving.scenarios import LOADS, MODEL, NETWORKS
from tools.netns.trial import make_key
from tools.tables import write as write_table

PAGE = ROOT / "docs" / "serving-fidelity.md"
KEPT = ROOT / "runs" / "serving-fidelity"
NOTES = Path(__file__).with_name("notes.md")
REPEATS = 2
GOAL = {"TTFT": 0.05, "TPOT": 0.02}
TABLE = "fidelity-serving"
COLUMNS = (
    *("network", "load"),
    *(f"{name}, {column}" for name in GOAL for column in ("predicted", "measured", "spread", "off by")),
)


@dataclass(frozen=True)
class Outcome:
    """The results of a load on a network: predicted times, and those of several measurements."""

    network: str
    words: str
    predicted: Times
    measured: Sequence[Times]

    def error(self, name: str) -> float:
        """Return the error of the predicted TTFT or TPOT, relative to the mean of the
        measurements.
        """
        return value(self.predicted, name) / fmean(value(one, name) for one in self.measured) - 1

    def cells(self, name: str) -> list[str]:
        found = [value(one, name) for one in self.measured]
        spread = (max(found) - min(found)) / fmean(found)
        shown = [f"{1e3 * seconds:.1f} ms" for seconds in (value(self.predicted, name), fmean(found))]
        return [*shown, f"{spread:.1%}", f"{self.error(name):+.1%}"]


def value(times: Times, name: str) -> float:
    return times.ttft_s if name == "TTFT" else times.tpot_s


def compared(folder: Path, repeats: int) -> list[Outcome]:
    """Return the outcome of every load on every network, in order.

    Measurements in *folder* are not made again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key = make_key(folder)
    model = folder / "model"
    outcomes = list[Outcome]()
    if not (model / "config.json").is_file():
        write_folder(model, model_of(**MODEL))
    for placed in NETWORKS:
        with hosts_of(load(placed.network.document())) as hosts:
            bench = Bench(placed, hosts, folder, model, key)
            measured: dict[str, list[Times]] = {words: [] for words in LOADS}
            bench.calibrated()
            for repeat in range(repeats):
                for words in LOADS:
                    measured[words].append(bench.measure(words, repeat))
            for words, times in measured.items():
                outcomes.append(Outcome(placed.network.name, words, bench.predict(words), times))
                print(", ".join(row(outcomes[-1])), flush=True)
    return outcomes


def row(outcome: Outcome) -> list[str]:
    return [outcome.network, outcome.words, *outcome.cells("TTFT"), *outcome.cells("TPOT")]


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return sentences on the errors, and on the number of scenarios within the goals."""
    parts = []
    for name, most in GOAL.items():
        errors = [abs(outcome.error(name)) for outcome in outcomes]
        inside = sum(error <= most for error in errors)
        parts.append(
            f"{name}: median error {median(errors):.1%}, worst {max(errors):.1%}, "
            f"{inside} of {len(errors)} scenarios within {most:.0%}."
        )
    return " ".join(parts)


def page(outcomes: Sequence[Outcome]) -> str:
    """Return the page: a summary, a link to the table, and remarks."""
    return "\n".join(
        [
            "# Serving, predicted against measured",
            "",
            f"Made by `make fidelity-serving` on {date.today().isoformat()}. {summary(outcomes)}",
            "",
            f"[All scenarios](tables/{TABLE}.csv)",
            "",
            NOTES.read_text(encoding="utf-8"),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.netns.serving", description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS, help="measured runs of each scenario")
    parser.add_argument("--keep", type=Path, default=KEPT, help="results in this directory are not made again")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    arguments = parser.parse_args()
    if reason := missing():
        print(f"skipped: {reason}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the hosts end, too
    outcomes = compared(arguments.keep, arguments.repeats)
    write_table(arguments.out.parent / "tables" / f"{TABLE}.csv", [COLUMNS, *map(row, outcomes)])
    arguments.out.write_text(page(outcomes), encoding="utf-8")
    print(summary(outcomes))


if __name__ == "__main__":
    main()
