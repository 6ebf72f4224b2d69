"""Find disturbed rounds and samples; drop those rounds and replace those samples.

A pause of the machine only ever lengthens a sample. A round is disturbed if a witness reports it:
an event loop that woke up late, or CPU time stolen by the host of a virtual machine. A single
sample is disturbed if it is far above the same sample of the other rounds. If more than a third of
the rounds look disturbed, disturbances are normal on this machine: all rounds are kept, and their
spread shows it. All samples of filling a send buffer are kept, since the fit uses only the
shortest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from simcluster.lab.calibrate.samples import FILL, LATE, STOLEN, SampleRow

LATE_S, STOLEN_S = 0.02, 0.05
"""Limits up to which a late wake-up and stolen CPU time do not disturb a round.

A few context switches, or ticks of the kernel's clock, cause values below these limits.
"""

DEVIATIONS, LEAST_SHARE = 6.0, 0.05
"""Limits on a sample's distance above the median: a sample beyond both is disturbed.

The first is in robust deviations, the second a share of the median.
"""

MOST_OF_ROUNDS, MOST_OF_A_ROUND = 1 / 3, 1 / 4
"""Limits on the share of dropped rounds, and on the disturbed share of a round's samples."""

ENOUGH = 5
"""Least number of samples among which one can count as disturbed."""

NORMAL = 1.4826
"""A normal distribution's standard deviation divided by its median absolute deviation."""


@dataclass(frozen=True)
class CalibrationRounds:
    """The *rows* of the *kept* rounds, in which disturbed samples are replaced.

    A replacement is the sample of the nearest undisturbed round. Samples of filling a buffer are
    from all rounds. *rejected* maps each dropped round to the reason; *replaced* is the number of
    replaced samples.
    """

    rows: tuple[SampleRow, ...]
    kept: tuple[int, ...]
    rejected: Mapping[int, str]
    replaced: int


def undisturbed(rows: Sequence[SampleRow]) -> CalibrationRounds:
    """Return *rows* without disturbed rounds, and with disturbed samples replaced."""
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
    """Return the rounds with a value greater than *least* and far above the median.

    Return none if there are fewer than ENOUGH rounds.
    """
    if len(by_round) < ENOUGH:
        return set()
    middle = median(by_round.values())
    deviation = NORMAL * median(abs(seconds - middle) for seconds in by_round.values())
    limit = max(least, middle + max(DEVIATIONS * deviation, LEAST_SHARE * middle))
    return {number for number, seconds in by_round.items() if seconds > limit}


def _by_witness(rows: Sequence[SampleRow]) -> dict[int, str]:
    """Return round -> reason for each round in which a node woke up late or CPU time was stolen."""
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
