"""Find the parts of an experiment that its run never reached: faults, a stop rule, traces, links."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from simcluster.experiment.read.experiment import Experiment
from simcluster.fault_plans.kinds import Fault, Join, NodeFault
from simcluster.runs import words
from simcluster.runs.record import RunRecord
from simcluster.runs.steps import steps_of
from simcluster.topology.idle_links import idle_words, simulated_only
from simcluster.topology.model.stragglers import Trace

MOST_LINES = 10


def unreached(plan: Experiment, to_come: Sequence[Fault], record: RunRecord) -> list[str]:
    """Return a line for each part of *plan* that was never reached; [] for a failed run.

    A run that `stop.patience` has ended begins with a line that says so.
    Such a part is a fault in *to_come* that did not happen, a stop rule that did not end the run,
    a trace before its first change, or links that no route uses. At most MOST_LINES are returned.
    """
    if record.error is not None:
        return []
    ended = f"the run ended at {_time(record.elapsed_s)}"
    found = [*_early_end(plan, record), *_faults(plan, to_come, record, ended), *_stop_rules(plan, record, ended)]
    if plan.backend == "sim":  # traces change simulated links and devices only
        found += [*_traces(plan, record.elapsed_s, ended), *idle_words(plan.topology)]
    else:
        found += simulated_only(plan.topology)
    if left_out := record.extra.get("faults_left_out"):
        found.insert(0, f"the world acted {left_out:,} more times than the list of faults has")
    rest = len(found) - MOST_LINES
    return found if rest <= 0 else [*found[: MOST_LINES - 1], f"and {rest + 1} more were never reached"]


def _time(time_s: float) -> str:
    return f"{time_s:.3g} s" if 1e-3 <= time_s < 60 else words.seconds(time_s)


def _faults(plan: Experiment, to_come: Sequence[Fault], record: RunRecord, ended: str) -> Iterator[str]:
    # All other faults happened before the run was resumed.
    awaited = {id(fault.spec) for fault in to_come}
    happened = Counter(_key(row["plan"]) for row in record.extra.get("faults", ()) if _counts(row, record.elapsed_s))
    for number, fault in enumerate(plan.faults, 1):
        key = _key(fault.spec)
        if id(fault.spec) not in awaited:
            continue
        if happened[key]:
            happened[key] -= 1
            continue
        begins_s = min(spell[isinstance(fault, Join)] for spell in fault.spells)
        why = ended
        if fault.step is None and isinstance(fault, NodeFault) and begins_s < record.elapsed_s:
            why = f"{fault.target} had already ended"
        yield f"fault {number} ({fault.kind} of {fault.target} at {fault.at}) never happened: {why}"


def _key(spec: object) -> str:
    return json.dumps(spec, sort_keys=True, default=str)


def _counts(row: Mapping[str, Any], elapsed_s: float) -> bool:
    """Return whether the fault of *row*, as in summary.json, happened before the run ended.

    A fault of a node has a row only if the node was there. A fault of a link may have a row
    although the launcher of real nodes began it just after they had ended.
    """
    if row["kind"] == "join":
        return row["spells_s"][-1][1] is not None
    return "node" in row["plan"] or any(start_s is not None and start_s < elapsed_s for start_s, _ in row["spells_s"])


def _early_end(plan: Experiment, record: RunRecord) -> Iterator[str]:
    if record.nodes and record.standing.ended_early:
        in_a_row = words.plural(plan.document["stop"]["patience"], "evaluation")
        yield f"stopped after step {steps_of(record).steps}: no lower held-out loss in {in_a_row}"


def _stop_rules(plan: Experiment, record: RunRecord, ended: str) -> Iterator[str]:
    """If the run had two stop rules, yield a line for the one that did not end it."""
    if plan.time_s is None:
        return
    steps, _ = steps_of(record)
    stop = plan.document["stop"]
    rule = "epochs" if "epochs" in stop else "steps"
    if plan.planned_steps is None or steps >= plan.steps:
        rule = "time"
        if record.elapsed_s >= plan.time_s:
            return
    yield f"stop.{rule} ({stop[rule]}) was never reached: {ended}, after {words.plural(steps, 'step')}"


def _traces(plan: Experiment, elapsed_s: float, ended: str) -> Iterator[str]:
    for node in plan.topology.nodes.values():
        straggler = node.device.straggler if node.device is not None else None
        if isinstance(straggler, Trace) and (first_s := _first(straggler.factors)) >= elapsed_s:
            yield f"the trace of {node.name} never changed: its first change is at {_time(first_s)}, {ended}"
    for link in plan.topology.links:
        for key, trace in (("trace", link.trace), ("latency_trace", link.latency_trace)):
            if trace is not None and (first_s := _first(trace.steps)) >= elapsed_s:
                yield f"the {key} of {link.name} never changed: its first change is at {_time(first_s)}, {ended}"


def _first(changes: Iterable[tuple[float, float]]) -> float:
    """Return the time of the first of *changes* after the start; 0 if there is none."""
    return next((time_s for time_s, _ in changes if time_s > 0), 0.0)
