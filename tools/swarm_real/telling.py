"""Verdicts in words: the broken invariants, the seed, and the command that replays it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tools.swarm_real.draw import Drawn
from tools.swarm_real.many import KEPT
from tools.swarm_real.trial import Verdict

SHOWN: Final = ("algorithm", "workload", "stop", "checkpoint", "regroup", "seed")


def describe(drawn: Drawn) -> list[str]:
    document = drawn.case.document
    lines = [f"{key}: {document[key]}" for key in SHOWN if key in document]
    lines.append(
        f"topology: {document['topology']['name']} of {len(drawn.case.workers)}; options: {drawn.case.options}"
    )
    lines.append(f"a gradient takes {drawn.pace_s:.3f} s" + ", and the command is a process of its own" * drawn.alone)
    lines += [f"fault: {fault}" for fault in drawn.case.faults]
    return lines + [f"from outside: {act}" for act in drawn.acts]


def told(verdict: Verdict) -> Iterator[str]:
    """Yield a line with the command that replays *verdict*, if an invariant is broken."""
    case = verdict.drawn.case
    if verdict.broken:
        name, how = verdict.broken[0]
        more = f" (and {len(verdict.broken) - 1} more)" if len(verdict.broken) > 1 else ""
        where = KEPT / f"seed-{case.seed}"
        yield f"python -m tools.swarm_real --seed {case.seed}  # {case.algorithm}: {name}: {_short(how)}{more}; {where}"


def told_of_one(verdict: Verdict) -> Iterator[str]:
    """Yield all lines that describe *verdict*."""
    if verdict.refused:
        yield f"refused: {verdict.refused}"
        return
    yield f"happened: {', '.join(verdict.happened) or 'nothing'}; {', then '.join(verdict.ways)}"
    yield from (f"BROKEN {name}: {how}" for name, how in verdict.broken)
    yield f"kept in {KEPT}/seed-{verdict.drawn.case.seed}" if verdict.broken else "held"


def summary(verdicts: Sequence[Verdict], took_s: float) -> Iterator[str]:
    broken = [verdict for verdict in verdicts if verdict.broken]
    for name, count in Counter(name for verdict in broken for name in dict(verdict.broken)).most_common():
        yield f"{count:6}  {name}"
    for title, counts in (
        ("happened", Counter(kind for verdict in verdicts for kind in verdict.happened)),
        ("ways", Counter(way for verdict in verdicts for way in verdict.ways)),
    ):
        yield f"{title}: {', '.join(f'{name} {count}' for name, count in counts.most_common())}"
    refused, again = sum(bool(verdict.refused) for verdict in verdicts), sum(verdict.again for verdict in verdicts)
    algorithms = len({verdict.drawn.case.algorithm for verdict in verdicts})
    yield (
        f"{len(verdicts)} seeds of {algorithms} algorithms, {refused} refused, {again} played again on "
        f"a machine that was too busy, {len(broken)} break an invariant; "
        f"{took_s:.0f} s, {took_s / len(verdicts):.1f} s a seed"
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) < 200 else line[:197] + "..."
