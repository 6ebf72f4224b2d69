"""Separates disturbed rounds from the others, and replaces disturbed samples.

A pause of the machine only ever lengthens a sample. A round is disturbed if a witness reports it: an event loop that
woke up late, or CPU time stolen by the host of a virtual machine. A single sample is disturbed if it is far above the
same sample of the other rounds. If more than a third of the rounds look disturbed, the machine is like that: then none
is set aside, and the spread shows it. Samples of filling a send buffer are all kept: the shortest one counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from simcluster.lab.calibrate.samples import FILL, LATE, STOLEN, SampleRow

LATE_S, STOLEN_S = 0.02, 0.05
"""Less does not disturb a round: some context switches; a few ticks of the kernel's clock."""

DEVIATIONS, LEAST_SHARE = 6.0, 0.05
"""A sample is disturbed if it exceeds the median by this many robust deviations, and by at least this share."""

MOST_OF_ROUNDS, MOST_OF_A_ROUND = 1 / 3, 1 / 4
ENOUGH = 5
"""With fewer samples, none can be judged."""

NORMAL = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""


@dataclass(frozen=True)
class CalibrationRounds:
    """The *rows* of *kept* rounds, with each disturbed sample replaced by that of the nearest undisturbed round.

    Samples of filling a buffer are from all rounds. *rejected* has the reason by round; *replaced* counts samples.
    """

    rows: tuple[SampleRow, ...]
    kept: tuple[int, ...]
    rejected: Mapping[int, str]
    replaced: int


def undisturbed(rows: Sequence[SampleRow]) -> CalibrationRounds:
    """Set aside the disturbed rounds and samples in *rows*."""
    numbers = sorted({row.number for row in rows})
    samples = [row for row in rows if row.parts[0] not in (LATE, STOLEN)]
    series: dict[tuple[int, str], dict[int, list[SampleRow]]] = defaultdict(lambda: defaultdict(list))
    for row in samples:
        series[row.rank, row.name][row.number].append(row)
    far = {
        key: _far({number: median(row.seconds for row in found) for number, found in of.items()})
        for key, of in series.items()
    }
    counted = Counter(number for numbers in far.values() for number in numbers)
    judged = sum(len(of) >= ENOUGH and not key[1].startswith(FILL) for key, of in series.items())
    rejected = _by_witness(rows) | {
        number: f"{count} of {judged} samples far above those of other rounds"
        for number, count in counted.items()
        if count > MOST_OF_A_ROUND * judged
    }
    if len(rejected) > MOST_OF_ROUNDS * len(numbers):
        return CalibrationRounds(tuple(samples), tuple(numbers), {}, 0)
    kept = tuple(number for number in numbers if number not in rejected)
    out: list[SampleRow] = []
    replaced = 0
    for key, of in series.items():
        if key[1].startswith(FILL):
            out += [row for found in of.values() for row in found]
            continue
        good = [number for number in kept if number in of and number not in far[key]]
        for number in kept:
            if number not in of:
                continue
            source = number if number in good or not good else min(good, key=lambda n: (abs(n - number), n))
            replaced += source != number
            out += [row._replace(number=number) for row in of[source]]
    return CalibrationRounds(tuple(out), kept, dict(sorted(rejected.items())), replaced)


def _far(by_round: Mapping[int, float], least: float = 0.0) -> set[int]:
    """Return the rounds far above the others, and above *least*."""
    if len(by_round) < ENOUGH:
        return set()
    middle = median(by_round.values())
    deviation = NORMAL * median(abs(seconds - middle) for seconds in by_round.values())
    limit = max(least, middle + max(DEVIATIONS * deviation, LEAST_SHARE * middle))
    return {number for number, seconds in by_round.items() if seconds > limit}


def _by_witness(rows: Sequence[SampleRow]) -> dict[int, str]:
    found: dict[int, str] = {}
    for what, least_s, words in (
        (LATE, LATE_S, "a node woke up {:.0f} ms late"),
        (STOLEN, STOLEN_S, "{:.0f} ms of CPU time were stolen"),
    ):
        most: dict[int, float] = {}
        for row in rows:
            if row.parts[0] == what:
                most[row.number] = max(most.get(row.number, 0.0), row.seconds)
        found |= {number: words.format(most[number] * 1e3) for number in _far(most, least_s)}
    return found
