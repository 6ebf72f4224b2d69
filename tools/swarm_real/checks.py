"""Invariants of all runs on real processes: their ends, folders, weights and samples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from simcluster.fault_plans.kinds import CRASHED, Crash, Hang, Join, Restart
from simcluster.results import load_run
from tools.swarm.checks.folder import check_folder
from tools.swarm.checks.outcome import Found, check_outcome
from tools.swarm.checks.samples import COUNTED
from tools.swarm.checks.weights import agrees, check_judged, same_bits
from tools.swarm.hits import Hits
from tools.swarm.play import Played
from tools.swarm.promise import is_exact
from tools.swarm_real.happened import died_early
from tools.swarm_real.play import Lived, read

CODES: Final = {"done": 0, "failed": 1}
EXPECTED: Final = ("simcluster.errors.", "ExceptionGroup: unhandled errors in a TaskGroup")
"""Exceptions that may appear with a traceback in a node's log.

Exceptions in a group also appear separately.
"""
LEAVES_S: Final = 1.2
"""The limit on the time for which a node may train after it was asked to leave.

The request comes with the next heartbeat, within 0.5 s. The node, the launcher and the node again
pass it on, and a busy machine may delay each of them.
"""


def check_run(lived: Lived, played: Played, before: Played, hits: Hits, pace_s: float) -> Found:
    """Yield each broken invariant of a run.

    *before* is the undisturbed run in the simulator. A gradient takes *pace_s*.
    """
    yield from check_end(lived)
    if lived.code is None:
        return
    told = read(lived.folder)
    unnamed = set(lost_outside(played)) - set(told.get("lost") or ())
    if told.get("status") == "done" and unnamed and "restarts" not in told:
        yield "a run that ends well names the nodes that it lost", f"done, and lost has no {sorted(unnamed)}"
    if not died_early(lived, played):
        yield from check_outcome(played, hits)
    if not played.summary:
        return
    yield from _check_leaves(lived, played, pace_s)
    yield from check_folder(played)
    yield from _samples(lived, played, hits)
    if played.is_done:
        yield from _weights(played, before, hits)


def check_end(lived: Lived) -> Found:
    """Check that the command exits with the right code, and leaves no process or open port."""
    if lived.code is None:
        yield "a run ends", "it was still there long after all that happened to it"
        return
    if lived.left:
        yield "nothing is left behind", ", ".join(lived.left)
    expected = CODES.get(read(lived.folder).get("status", ""))
    if lived.code != expected:
        yield "the exit code is that of the outcome", f"{lived.code}, not {expected}: {lived.said[-300:]}"
    for words in [lived.said, *(path.read_text() for path in sorted((lived.folder / "logs").glob("*.log")))]:
        for raised in _raised(words):
            if not raised.startswith(EXPECTED):
                yield "nothing is only logged", raised


def _raised(words: str) -> Iterator[str]:
    """Yield the last line of each traceback in *words*, which names the exception."""
    for block in words.split("Traceback (most recent call last):")[1:]:
        lines = [re.sub(r"^[ |]*\| ", "", line) for line in block.splitlines()[1:]]
        yield next((line for line in lines if line and line[0] not in " +|"), "")


def _check_leaves(lived: Lived, played: Played, pace_s: float) -> Found:
    """Check that a node that is asked to leave soon stops training.

    This applies to the process that was asked. If the run restarts, its successor trains to the
    end.
    """
    for act in lived.done:
        life, before = lived.before[act]
        late_s = (lived.taken[life] - before) * pace_s
        if act.kind in ("post", "term") and act.node not in played.lost and late_s > LEAVES_S + 3 * lived.held_up_s:
            yield "a node that is asked to leave leaves", f"{act}, and it trained for {late_s:.1f} s more"


def lost_outside(played: Played) -> Iterator[str]:
    """Yield the nodes that were lost because they were killed or stopped from outside."""
    for row in played.happened:
        name = row["plan"].get("node")
        # A loss is planned if the node would have joined late, or if the plan kills the node while
        # it is stopped.
        is_planned = any(words in played.lost.get(name, "") for words in ("join", CRASHED))
        if row.get("outside") and row["kind"] in ("crash", "hang") and name in played.lost and not is_planned:
            yield name


def _samples(lived: Lived, played: Played, hits: Hits) -> Found:
    samples = played.summary.get("samples")
    if samples is None:
        return
    batch = played.case.document["workload"]["batch_size"]
    counted, drawn = samples["used"] + samples["lost"], sum(lived.drawn.values()) * batch
    if min(samples.values()) < 0 or samples["repeated"] > samples["used"]:
        yield "samples", f"{samples}"
    if "restarts" in played.summary or "resumed" in played.summary or _shares_batches(played):
        return
    killed = hits.of(Crash, Restart, Hang) or played.lost
    if counted > drawn or (counted < drawn and not killed):
        yield "drawn = used + lost", f"{drawn} drawn, {samples}"
    if played.case.algorithm in COUNTED and played.is_done and played.case.workers[0] not in hits.gone:
        metrics = load_run(played.folder).metrics
        applied = metrics[metrics.name == "applied"].value.max()
        if samples["used"] != applied * batch:
            yield "used = applied", f"{applied:g} batches of {batch} applied, {samples}"


def _shares_batches(played: Played) -> bool:
    """Return whether every rank draws the batches of all ranks, so that each batch is drawn
    repeatedly.
    """
    return played.case.algorithm == "tensor_parallel" or played.case.algorithm == "pipeline"


def _weights(played: Played, before: Played, hits: Hits) -> Found:
    yield from check_judged(played, hits)
    if hits.plan.time_s is not None:
        return
    found, expected = (run.summary["weights_sha256"] for run in (played, before))
    if is_exact(played.case) and same_bits(played, hits) and found != expected:
        yield "the bits of the undisturbed run", f"{found}, not {expected}"
    if not agrees(played.case.algorithm) or len(_digests(before)) > 1:
        return
    if played.case.algorithm in ("k_async", "ssp") and hits.of(Restart, Join):
        return  # a rank that joins late still has batches when the others have none
    if len(digests := _digests(played)) > 1:
        yield "survivors agree", f"{digests}"


def _digests(played: Played) -> set[str]:
    """Return the hashes of the weights of the nodes that ended in the last group."""
    regroups = played.summary.get("regroups", ())
    members = regroups[-1]["members"] if regroups else list(played.summary["nodes"])
    since_s = regroups[-1]["time_s"] if regroups else 0.0
    nodes = [node for name, node in played.summary["nodes"].items() if name in members and name not in played.lost]
    return {node["weights_sha256"] for node in nodes if (node["finished_s"] or 0.0) > since_s}
