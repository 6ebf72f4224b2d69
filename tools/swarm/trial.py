"""A trial of one seed: its undisturbed run, its disturbed run, and the verdict on both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from simcluster.checkpoints.store import checkpoints
from simcluster.errors import NobodyLeft, PeerLost
from tools.swarm.case import Case
from tools.swarm.checks.folder import check_folder
from tools.swarm.checks.outcome import Found, check_outcome
from tools.swarm.checks.samples import check_bytes, check_samples
from tools.swarm.checks.weights import check_weights
from tools.swarm.draw.case import draw_case
from tools.swarm.draw.dice import Dice
from tools.swarm.draw.faults import Clock, draw_faults
from tools.swarm.draw.topology import IN_PARTS
from tools.swarm.hits import Hits, hits_of
from tools.swarm.play import Played, is_refused, play
from tools.swarm.promise import restores_bits


@dataclass
class Verdict:
    """The outcome of one seed.

    *broken* has (invariant, how it is broken). *refused* says why nothing was run, if that is so.
    """

    case: Case
    broken: list[tuple[str, str]] = field(default_factory=list)
    refused: str = ""
    runs: list[Played] = field(default_factory=list)

    @property
    def virtual_s(self) -> float:
        return sum(run.record.elapsed_s for run in self.runs if run.record is not None)

    @property
    def names(self) -> list[str]:
        """The names of the broken invariants."""
        return [name for name, _ in self.broken]


def try_seed(seed: int, place: Path) -> Verdict:
    """Return the verdict on *seed*. Write its runs to folders in *place*."""
    return try_case(draw_case(seed), place, draws=True)


def try_case(case: Case, place: Path, *, draws: bool = False) -> Verdict:
    """Return the verdict on *case*. Write its runs to folders in *place*.

    If *draws*, first draw faults for it, from the times of its undisturbed run.
    """
    before = play(case.undisturbed, place / "undisturbed")
    verdict = Verdict(case, runs=[before])
    if is_refused(before):
        verdict.refused = str(before.error)
        return verdict
    if case.document["topology"]["name"] == IN_PARTS:
        verdict.broken.append(("a topology in parts is refused", f"{before.error!r}"))
    verdict.broken += [(f"undisturbed: {name}", how) for name, how in _judge(before, before)]
    if before.record is None or not before.is_done:
        return verdict
    if len(sizes := case.batch_sizes) == 1 and isinstance(case.document["workload"].get("batch_size"), dict):
        verdict.broken += _judge_sizes(case, sizes[0], before, place / "one size")
    if draws:
        verdict.case = case = draw_faults(case, clock_of(before))
    if not case.faults:
        return verdict
    after = play(case, place / "disturbed")
    verdict.runs.append(after)
    if is_refused(after):
        verdict.refused = str(after.error)
        return verdict
    verdict.broken += _judge(after, before)
    if after.plan is not None and isinstance(after.error, (PeerLost, NobodyLeft)):
        hits = hits_of(case, after.plan, after.happened)
        verdict.broken += _judge_resumed(after, before, hits, place / "resumed", verdict)
    return verdict


def _judge_sizes(case: Case, size: int, before: Played, folder: Path) -> Found:
    """Check that equal batch sizes by node give the same bits as a single batch size."""
    one = play(case.with_document(workload=case.document["workload"] | {"batch_size": size}).undisturbed, folder)
    found, expected = before.summary["weights_sha256"], one.summary.get("weights_sha256")
    if found != expected:
        yield "equal sizes are one size", f"{found}, and {expected} with batch_size: {size}; {one.error!r}"


def clock_of(played: Played) -> Clock:
    """Return the time at which *played* ended, and the times at which its steps ended."""
    assert played.record is not None
    steps_s = sorted({metric.time_s for node in played.record.nodes for metric in node.metrics})
    return Clock(played.record.elapsed_s, steps_s)


def _judge(played: Played, before: Played) -> Iterator[tuple[str, str]]:
    """Yield each broken invariant of *played*. *before* is the undisturbed run."""
    if played.plan is None:
        yield "errors are typed", f"{type(played.error).__name__}: {played.error}"
        return
    hits = hits_of(played.case, played.plan, played.happened)
    checks: list[Callable[[], Found]] = [partial(check_outcome, played, hits)]
    if played.summary:
        checks += [partial(check, played, before, hits) for check in (check_weights, check_samples)]
        checks += [partial(check, played) for check in (check_bytes, check_folder)]
    for check in checks:
        try:
            yield from check()
        except Exception as error:  # a file or a record that every run must leave is missing
            yield "what a run leaves can be read", f"{type(error).__name__}: {error}"


def _judge_resumed(after: Played, before: Played, hits: Hits, folder: Path, verdict: Verdict) -> Found:
    """Resume a failed run from its last checkpoint, if there is one.

    Check that the resumed run ends well, with the promised bits.
    """
    found = checkpoints(after.folder)
    if not found or found[-1].step >= hits.plan.steps or "time" in after.case.document["stop"]:
        return
    all_happened = len(hits.happened) == len(hits.plan.faults)
    repeats = all_happened and Dice(after.case.seed).chance("resumed with its faults", 0.5)
    resumed = play(after.case, folder, resumed=after.folder, keeps_faults=repeats)
    verdict.runs.append(resumed)
    words = "resumed with faults that have happened" if repeats else "resumed"
    if resumed.error is not None:
        yield f"{words}: it ends well", f"{type(resumed.error).__name__}: {resumed.error}"
        return
    regrouped = after.summary.get("regroups") or found[-1].manifest.world_size != len(after.case.workers)
    same = resumed.summary["weights_sha256"] == before.summary["weights_sha256"]
    if restores_bits(after.case, hits) and not regrouped and not same:
        yield f"{words}: the bits of the undisturbed run", f"from step {found[-1].step}, cut {found[-1].manifest.cut}"
    yield from ((f"{words}: {name}", how) for name, how in check_folder(resumed))
