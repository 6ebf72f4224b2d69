"""Invariants of a run's end: its outcome is as promised, its error typed, and each loss planned."""

from __future__ import annotations

from collections.abc import Iterator

import simcluster
from simcluster.errors import NobodyLeft, PeerLost
from simcluster.fault_plans.kinds import Crash, Join, Leave, Restart
from tools.swarm.case import Case
from tools.swarm.hits import Hits
from tools.swarm.play import Played
from tools.swarm.promise import must_be_done, only_serves, serves_any, trains, way_of

Found = Iterator[tuple[str, str]]
"""(invariant, description of how it is broken)."""


def check_outcome(played: Played, hits: Hits) -> Found:
    """Yield each broken invariant of the end of *played*."""
    error = played.error
    for words in played.counted.said:
        yield "nothing is only logged", words
    if not played.counted.kept_generators:
        yield "the caller's generators are kept", "a global generator of torch, numpy or random has another state"
    for fault in hits.of(Crash, Leave):
        began = sum(len(row["spells_s"]) for row in played.happened if row["plan"] == dict(fault.spec))
        if began > sum(dict(other.spec) == dict(fault.spec) for other in hits.happened):
            yield "a fault happens once", f"{dict(fault.spec)} began {began} times"
    if error is None:
        yield from _check_done(played, hits)
        return
    if not isinstance(error, (PeerLost, NobodyLeft)):
        lines = str(error).strip().splitlines() or [""]
        yield "errors are typed", f"{type(error).__name__}: {lines[0]} ... {lines[-1][:200]}"
        return
    attempts, most = len(played.summary.get("restarts", ())), played.case.options.get("max_restarts", 0)
    if isinstance(error, PeerLost) and attempts < most:
        yield "a run that may begin again does", f"{error}; {attempts} of {most} restarts"
    elif attempts and len(played.losses) <= attempts and "min_workers" not in played.case.options:  # some may be late
        yield "a run that began again ends well", f"{error}; losses: {played.losses}"
    elif not attempts and must_be_done(played.case, hits):
        yield "the promised outcome", f"{error}; core {hits.core}, may be lost {sorted(hits.may_be_lost)}"
    if isinstance(error, PeerLost) and error.name not in hits.may_be_lost:
        yield "a failure names a planned loss", f"{error}; may be lost: {sorted(hits.may_be_lost)}"


def _check_done(played: Played, hits: Hits) -> Found:
    summary = played.summary
    lost, nodes = set(played.lost), summary["nodes"]
    if lost - hits.may_be_lost:
        yield "only planned losses", f"lost {played.lost}, may be lost {sorted(hits.may_be_lost)}"
    unfinished = [name for name, node in nodes.items() if node["finished_s"] is None and name not in lost]
    if unfinished:
        yield "a node ends or is lost", f"{unfinished} did neither"
    if lost >= set(nodes):
        yield "a node is left", f"done, and lost are {played.lost}"
    if summary["status"] != "done":
        yield "status", f"no error, and {summary['status']}"
    if "restarts" not in summary:
        for fault in hits.of(Crash):
            assert isinstance(fault, Crash)
            name = hits.plan.topology.workers[fault.rank]
            if name not in lost and name not in hits.comers:
                yield "a dead node is lost", f"{name} crashed, and lost are {played.lost}"
    trained = trains(played.case, hits) or "restarts" in summary
    # A server continues to train even without workers.
    steps = max(summary["steps"], summary.get("updates", 0))
    if hits.plan.time_s is None and trained and steps < (least := _least_steps(played.case, hits)):
        yield "all steps are done", f"{steps}, and at least {least} of {hits.plan.steps}"
    if hits.plan.time_s is None and not serves_any(played.case, _did_their_part(played, hits)):
        yield "a server that only serves fails with its workers", f"lost {played.lost}"
    if forgotten := _forgot(played, hits):
        yield "a run fails with its model", forgotten
    for name, came_s in _came_in_time(played, hits):
        if name in lost:
            yield (
                "a node that comes in time is let in",
                f"{name} came at {came_s:g} s, and is lost: {played.lost[name]}",
            )
    if hits.happened and (bad := _stands_badly(played, hits)):
        yield "the result is of a node that lives", bad


def _came_in_time(played: Played, hits: Hits) -> Iterator[tuple[str, float]]:
    """Yield (name, time) of each node that joins a re-forming run once, early enough to be let in.

    Its first message takes two latencies, as docs/faults.md says. A join in the last quarter of the
    run does not count, since jitter and full links may delay the node.
    """
    others = [fault for fault in hits.happened if not isinstance(fault, (Restart, Join))]
    if others or "restarts" in played.summary or way_of(played.case, hits) != "re-forms":
        return
    topology, nodes = hits.plan.topology, played.summary["nodes"]
    end_s = min((nodes[name]["finished_s"] or 0.0 for name in hits.core), default=0.0)
    for name in hits.comers:
        absences = [fault for fault in hits.of(Restart, Join) if topology.workers[fault.rank] == name]
        came_s = absences[0].spells[0][1]
        routes = [topology.route(name, other) for other in hits.core]
        latency_s = max((sum(hop.link.latency_s for hop in route) for route in routes), default=0.0)
        if len(absences) == len(absences[0].spells) == 1 and came_s + 2 * latency_s < 0.75 * end_s:
            yield name, came_s


def _forgot(played: Played, hits: Hits) -> str:
    """Return a description if the result lacks what a restarted server had trained,
    otherwise "".
    """
    if played.record is None:
        return ""  # real nodes leave no record of an earlier life
    server = played.record.nodes[0]
    began_again = server.incarnation > 0 and server.name not in played.lost
    if way_of(played.case, hits) != "served" or "restarts" in played.summary or not began_again:
        return ""
    names = hits.plan.topology.workers
    began_s = [fault.spells[0][0] for fault in hits.of(Restart) if names[fault.rank] == server.name]
    trained = [
        row for row in server.metrics if row.name == "applied" and row.value and began_s and row.time_s < began_s[0]
    ]
    return f"the server restarted at {began_s[0]:g} s, {len(trained)} updates after its start" if trained else ""


def _did_their_part(played: Played, hits: Hits) -> list[str]:
    """Return the nodes that survived, or were lost only after their last step."""
    least = _least_steps(played.case, hits)
    metrics = simcluster.load_run(played.folder).metrics
    far = set(metrics[metrics["step"] >= least]["node"])
    return [name for name in played.summary["nodes"] if name not in played.lost or name in far]


def _least_steps(case: Case, hits: Hits) -> int:
    """Return the minimum number of steps of a run that ends well.

    If it stops after epochs, a group that re-forms has another number of steps. If ranks are
    missing, updates that need a number of gradients happen less often.
    """
    if "steps" not in hits.plan.document["stop"]:
        return 1
    # A server's own steps count as one version per push interval.
    if case.algorithm == "edp" and case.settings.get("push") == "weights":
        return hits.plan.steps // case.settings.get("pull_interval", 1)
    # A round may be that of any worker, even a lost one.
    if "concurrency" in case.settings and only_serves(case):
        workers = len(case.workers) - 1
        places = min(case.settings["concurrency"], workers)
        return 1 if hits.happened else hits.plan.steps * places // workers
    gathers = case.algorithm == "softsync"
    return hits.plan.steps * len(hits.core) // len(case.workers) if gathers else hits.plan.steps


def _stands_badly(played: Played, hits: Hits) -> str:
    """Return what is wrong with the weights of the run, which one of its nodes provides, or ""."""
    summary = played.summary
    living = [node for name, node in summary["nodes"].items() if name not in played.lost]
    left = {node["weights_sha256"] for node in living}
    stands = summary["weights_sha256"]
    if stands not in left:
        return f"weights {stands} are those of no node that is left"
    initial = hits.plan.workload.replica(0, len(summary["nodes"]), hits.plan.seed, steps=1).weights_sha256()
    meets_first = played.case.algorithm == "easgd" and hits.plan.steps == 1  # the centre moves towards x before x moves
    # If a limit on time ends the run, even a node that was there from the start may have no step.
    late = all(node.get("incarnation") for node in living if node["weights_sha256"] == stands)
    if stands == initial and left != {initial} and (hits.plan.time_s is None or late) and not meets_first:
        return "it has the initial weights, and others have trained"
    return ""
