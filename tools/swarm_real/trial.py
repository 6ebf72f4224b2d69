"""A trial of one seed of the real swarm: simulated, run on processes, and resumed if that run
fails.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from simcluster.checkpoints.store import checkpoints
from simcluster.errors import NobodyLeft, PeerLost
from tools.swarm.checks.outcome import Found
from tools.swarm.hits import Hits
from tools.swarm.marks import way_of_ending
from tools.swarm.play import Played, is_refused, play
from tools.swarm.promise import restores_bits
from tools.swarm_real.checks import check_end, check_run
from tools.swarm_real.draw import Drawn, draw
from tools.swarm_real.happened import as_played
from tools.swarm_real.launcher import ROOT, Launcher
from tools.swarm_real.play import Lived, command, live, read

HELD_UP: Final = 0.25
"""The longest interruption of a process that counts, as a share of `dead_s`.

If a busy machine holds up a process for longer, a node may seem dead, and the run does not count.
"""
AGAIN_MOST: Final = 3


@dataclass
class Verdict:
    """The outcome of one seed.

    *broken* has (invariant, how it is broken). *ways* has the ways in which the runs ended.

    *again* is the number of runs that did not count, because the machine held up their processes.
    """

    drawn: Drawn
    broken: list[tuple[str, str]] = field(default_factory=list)
    refused: str = ""
    ways: list[str] = field(default_factory=list)
    again: int = 0
    happened: list[str] = field(default_factory=list)


class Launchers:
    """The launchers for the simcluster in *library*: one that stays, and a new one for
    some seeds.
    """

    def __init__(self, library: Path = ROOT) -> None:
        self._library = library
        self._staying = Launcher(stays=True, library=library)

    def of(self, drawn: Drawn) -> Launcher:
        return Launcher(stays=False, library=self._library) if drawn.alone else self._staying

    def close(self) -> None:
        self._staying.close()


def try_seed(seed: int, place: Path, launchers: Launchers) -> Verdict:
    """Return the verdict on *seed*. Write its runs to the folder *place*."""
    drawn = draw(seed)
    verdict = Verdict(drawn)
    for _ in range(AGAIN_MOST):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        before = play(replace(drawn.case.undisturbed, options={}), place / "undisturbed")
        if is_refused(before):
            verdict.refused = str(before.error)
            return verdict
        lived = live(drawn, place, launchers.of(drawn))
        if "error:" in lived.said and lived.code == 2:
            verdict.refused = lived.said
            return verdict
        played, hits = as_played(drawn, lived)
        if not _held_up(lived, played, hits, drawn):
            break
        verdict.again += 1
    verdict.happened = [f"{row['kind']}{' from outside' * row.get('outside', False)}" for row in played.happened]
    verdict.ways.append(way_of_ending(played))
    verdict.broken += _judged(drawn, lived, played, before, hits)
    if isinstance(played.error, (PeerLost, NobodyLeft)):
        verdict.broken += _resumed(drawn, played, before, hits, place, launchers, verdict)
    return verdict


def _judged(drawn: Drawn, lived: Lived, played: Played, before: Played, hits: Hits) -> Iterator[tuple[str, str]]:
    try:
        yield from check_run(lived, played, before, hits, drawn.pace_s)
    except Exception as error:  # a file that every run must leave is missing
        yield "what a run leaves can be read", f"{type(error).__name__}: {error}"


def _held_up(lived: Lived, played: Played, hits: Hits, drawn: Drawn) -> bool:
    """Return whether the machine held up processes for so long that the run does not count.

    Then an untouched node counted as dead, or the run ended before any act.
    """
    silent = [name for name, why in played.lost.items() if "silent for" in why and name not in hits.may_be_lost]
    missed = bool(drawn.acts) and not played.happened and lived.held_up_s > 2 * drawn.pace_s
    return missed or (bool(silent) and lived.held_up_s > HELD_UP * drawn.case.options["dead_s"])


def _resumed(
    drawn: Drawn, played: Played, before: Played, hits: Hits, place: Path, launchers: Launchers, verdict: Verdict
) -> Found:
    """Resume a failed run from its last checkpoint, if there is one.

    Check that the resumed run ends well, with the promised bits.
    """
    found = checkpoints(played.folder)
    if not found or found[-1].step >= hits.plan.steps or hits.plan.time_s is not None:
        return
    words = ["resume", str(played.folder), "--set", "faults=[]", "--no-report"]
    lived = command(words, place, launchers.of(drawn), replace(drawn, acts=()))
    verdict.ways.append("resumed")
    yield from ((f"resumed: {name}", how) for name, how in check_end(lived))
    summary = read(lived.folder)
    if summary.get("status") != "done":
        yield "resumed: it ends well", f"from step {found[-1].step}: {summary.get('error')} {lived.said[-300:]}"
        return
    regrouped = played.summary.get("regroups") or found[-1].manifest.world_size != len(played.case.workers)
    same = summary["weights_sha256"] == before.summary["weights_sha256"]
    if restores_bits(played.case, hits) and not regrouped and not same:
        yield "resumed: the bits of the undisturbed run", f"from step {found[-1].step}, cut {found[-1].manifest.cut}"
