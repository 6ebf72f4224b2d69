"""`make hostile`: run the same training undisturbed and among hostile clients, and compare.

The exit code is 1 if the weights differ, or if memory or open files grow too much.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import simcluster
from tools.hostile.reading import fuzz
from tools.hostile.siege import EXPERIMENT, Besieged, Taken, besiege, running, settle

PACE_S = 0.2
AFTER_S = 20.0
"""The time for which the run continues after the siege, so that leaks can be measured."""

GROWTH_BYTES = 24 * 1024**2
"""The limit on the extra memory growth of a process among hostile clients.

The undisturbed run keeps equally many records. The buffers of 64 unauthenticated connections take 8
MiB.
"""


Alone: TypeAlias = tuple[str, dict[str, Taken]]
"""(hash of the weights of an undisturbed run, process -> its resources before the last step)."""


@dataclass
class Report:
    """The comparison of both runs: their resources (*alone*, *among* clients), and the *faults*
    found.
    """

    besieged: Besieged
    alone: dict[str, Taken]
    among: dict[str, Taken]
    weights: tuple[str, str]
    log_bytes: int
    faults: list[str]


def alone_on_sockets(folder: Path, steps: int) -> Alone:
    """Run undisturbed in real processes, at a higher pace that still leaves time to
    measure them.
    """
    with running(folder, steps, 2.0 / steps) as run:
        taken = run.at_work(steps, 60.0 + steps)
        weights = run.result(60.0)["weights_sha256"]
    return weights, taken


def alone_in_simulator(folder: Path, steps: int) -> Alone:
    """Run undisturbed in the simulator, which yields the hash of the weights but no resources."""
    run = simcluster.run(EXPERIMENT, overrides={"stop.steps": steps}, out=folder, report=False)
    return run.summary["weights_sha256"], {}


def hold(
    folder: Path,
    seconds: float,
    seed: int,
    pace_s: float = PACE_S,
    after_s: float = AFTER_S,
    left_alone: Callable[[Path, int], Alone] = alone_on_sockets,
) -> Report:
    """Run the same steps undisturbed and then besieged for *seconds*. Return the report."""
    steps = int((seconds + after_s) / pace_s)
    peace, alone = left_alone(folder / "alone", steps)
    with running(folder / "besieged", steps, pace_s) as run:
        besieged = asyncio.run(besiege(run, seconds, seed))
        settle(run)
        settled = deepcopy(run.taken)  # leave out the end of the run, which writes files
        war = run.result(60.0 + 2 * steps * pace_s)["weights_sha256"]
    faults = list(besieged.tally.faults)
    if peace != war:
        faults.append(f"other weights: {war} besieged, {peace} alone")
    for name, taken in settled.items():
        if taken.last_files > taken.first_files:
            faults.append(f"{name} had {taken.first_files} files open and keeps {taken.last_files}")
        own_bytes = alone[name].grown_bytes if name in alone else 0
        if taken.grown_bytes > own_bytes + GROWTH_BYTES:
            faults.append(f"{name} grew by {taken.grown_bytes} bytes during the siege, by {own_bytes} when left alone")
    if besieged.unanswered:
        faults.append(f"the coordinator did not answer {besieged.unanswered} of its own client's calls")
    return Report(besieged, alone, settled, (peace, war), (folder / "besieged" / "log").stat().st_size, faults)


def show(report: Report) -> None:
    tally = report.besieged.tally
    mib = 1024**2
    print(f"{tally.attempts} visits in {report.besieged.seconds:.0f} s; a crowd is one visit of 100 connections")
    for (door, kind), ends in sorted(tally.ends.items()):
        ended = "; ".join(f"{count} {how}" for how, count in ends.most_common(6))
        print(f"  {door:10} {kind:13} {sum(ends.values()):6}   {ended}")
    print("resident MiB at first, at most, at last (growth, and when left alone); files at first, at most, at last")
    for name, taken in report.among.items():
        sizes = " ".join(f"{size / mib:6.1f}" for size in (taken.first_bytes, taken.peak_bytes, taken.last_bytes))
        growth = f"({taken.grown_bytes / mib:.1f}, {report.alone[name].grown_bytes / mib:.1f})"
        print(f"  {name:9} {sizes} {growth:13} {taken.first_files:4} {taken.peak_files:4} {taken.last_files:4}")
    answered, all_ = report.besieged.answered, report.besieged.answered + report.besieged.unanswered
    print(
        f"the coordinator answered {answered} of {all_} calls with its token; the run logged {report.log_bytes} bytes"
    )
    print(f"weights alone     {report.weights[0]}\nweights besieged  {report.weights[1]}")
    print("\n".join(report.faults) or "no client got in, no connection stayed open, nothing grew")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--inputs", type=int, default=300_000, help="mutations of the corpus to read before")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    kept = fuzz(arguments.inputs, arguments.seed)
    print(
        f"{arguments.inputs} mutations of the corpus read; untyped errors: {[path.name for path in kept] or 'none'}",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="hostile-") as root:
        report = hold(Path(root), arguments.seconds, arguments.seed)
    show(report)
    if kept or report.faults:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
