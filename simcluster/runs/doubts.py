"""Warn of reasons to doubt the result of a run, in words for the user.

The warnings are a list in summary.json; without warnings, the list is absent. The terminal, the
report, comparisons and `Run.warnings` read the list.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from simcluster.process.own_frames import original
from simcluster.runs.record import CodeDoubt, NodeRecord, RunRecord
from simcluster.runs.steps import steps_of

OUTSIDE = "outside_compute"
NO_TIME = "no_time"
NOT_AWAITED = "not_awaited"
NOT_FINITE = "not_finite"
SHARED = "shared_state"
SYSTEM = "system_randomness"
NO_STEP = "no_step"
UNTRAINED = "untrained"
MISFIT = "misfit"
STALE_STATISTICS = "stale_statistics"
UNREAD = "unread"
SENT = "sent"
READ = "read"
SUMS = "loss_sums"
ABSURD = "absurd"
IN_PLACE = "in_place"

LOSSES = ("loss", "eval_loss")
MOST_PLACES = 10
MOST_TEXT = 1000

INSTEAD = {
    "loss_and_gradients": "loss, gradients = await node.compute(replica.loss_and_gradients, batch, "
    "cost=replica.gradient_cost(batch))",
    "apply": "await node.compute(replica.apply, gradients, cost=replica.apply_cost())",
}
"""Methods of a replica that compute, each with the line that runs it on the node's device."""

METHODS = {"node": ("send", "recv", "compute"), "replica": ("checkpoint",)}
"""Usual name of a variable -> async methods of its object, to name a call that lacks `await`."""

Warned = dict[str, Any]
"""A warning: "kind", "text" and, if known, "nodes", "step" and "at", a place in user code.
"""


def doubts_of(record: RunRecord, *, computes: bool = True) -> list[Warned]:
    """Return the warnings of the run of *record*.

    *computes* is False for a timing-only run, which has no losses.
    """
    losses = _not_finite(record.nodes) if computes else ()
    found = [*_noticed(record), *_no_time(record), *_unread(record), *losses]
    found += [*record.extra.get(SHARED, ()), *record.extra.get("odd", ()), *record.extra.get("misfits", ())]
    return found + ([] if found and record.error is not None else [*_idle(record)])


def warned(kind: str, text: str, **more: Any) -> Warned:
    """Return a warning, with each place in captured code replaced by the original place."""
    more |= {"at": original(more["at"])} if more.get("at") else {}
    return {"kind": kind, "text": original(text)[:MOST_TEXT], **more}


def _noticed(record: RunRecord) -> Iterator[Warned]:
    """Yield one warning per suspicious line of user code, with all nodes that ran it."""
    by_place: dict[CodeDoubt, list[tuple[str, int]]] = {}
    rows = [(node.name, row) for node in record.nodes for row in node.noticed]
    for name, row in rows + [("", row) for row in record.extra.get("noticed", ())]:
        if row.kind in (SENT, READ):
            continue
        by_place.setdefault(row._replace(times=0), []).append((name, row.times))
    for row, found in list(by_place.items())[:MOST_PLACES]:
        names = [name for name, _ in found if name]
        count = sum(count for _, count in found)
        where = row.at or "the algorithm"
        times = "once" if count == 1 else f"{count:,} times"
        if row.kind == OUTSIDE:
            text = (
                f"{where} calls replica.{row.what} outside node.compute, {times}: such work takes no virtual time and "
                f"no energy, and on real nodes it blocks the node; write {INSTEAD.get(row.what, '')}"
            )
        elif row.kind == IN_PLACE:
            how = "finds weights changed" if row.what else "changes weights in place"
            text = (
                f"{where} {how} outside node.compute, {times}: such work takes no virtual time and no energy; put "
                "it into a function: await node.compute(update, replica.parameters, gradients, "
                "cost=replica.apply_cost())"
            )
        elif row.kind == STALE_STATISTICS:
            text = (
                f"the running statistics of the model (those of a batch norm) do not fit its final weights: {row.what} "
                "with the statistics of the held-out batches; they follow over many steps: see docs/statistics.md"
            )
        elif row.kind == SYSTEM:
            text = (
                f"{where} draws from the system's randomness ({row.what}), {times}: no seed repeats that; draw from "
                "node.rng, or give the generator a seed"
            )
        else:
            calls = f"{where} calls {_as_written(row.what)} without await, {times}"
            text = f"{calls}: nothing was done there; write `await` in front of it"
        yield warned(row.kind, text, nodes=names, at=row.at, count=count)


def _unread(record: RunRecord) -> Iterator[Warned]:
    """Yield a warning for each kind of message that a user's algorithm sends and no node ever receives."""
    if record.error is not None or record.extra.get("lost"):
        return  # a node that failed or was lost may be the one that would have received the message
    rows = [(node.name, row) for node in record.nodes for row in node.noticed]
    read = {row.what for _, row in rows if row.kind == READ}
    found: dict[str, list[tuple[str, CodeDoubt]]] = {}
    for name, row in rows:
        if row.kind == SENT and row.what not in read:
            found.setdefault(row.what, []).append((name, row))
    for kind, sent in list(found.items())[:MOST_PLACES]:
        at = sent[0][1].at
        count = sum(row.times for _, row in sent)
        text = (
            f"{at or 'the algorithm'} sends {count:,} messages with the tag {kind!r} (# is a number), and no node ever "
            "receives one: they take time on the links for nothing; receive them with node.recv, or do not send them"
        )
        yield warned(UNREAD, text, nodes=[name for name, _ in sent], at=at, count=count)


def _as_written(name: str) -> str:
    """Return a name such as `Node.send` as an algorithm writes it, node.send; others unchanged."""
    _, dot, method = name.rpartition(".")
    variable = next((variable for variable, methods in METHODS.items() if method in methods), "")
    return f"{variable}.{method}" if dot and variable else name


def _no_time(record: RunRecord) -> Iterator[Warned]:
    outside = any(row.kind in (OUTSIDE, IN_PLACE) for node in record.nodes for row in node.noticed)
    changed = [node.name for node in record.nodes if node.changed]
    if changed and not outside and all(node.compute_s == 0 for node in record.nodes):
        text = (
            "weights have changed, but no device has worked: time and energy count only the work in "
            "`await node.compute(work, ..., cost=...)` whose cost is above zero"
        )
        yield warned(NO_TIME, text, nodes=changed)


def _not_finite(nodes: Sequence[NodeRecord]) -> Iterator[Warned]:
    """Yield a warning for the earliest loss that is infinite or not a number, if there is one."""
    found = [
        (metric.time_s, node.rank, metric.step, metric)
        for node in nodes
        for metric in node.metrics
        if metric.name in LOSSES and not math.isfinite(metric.value)
    ]
    if not found:
        return
    _, rank, step, first = min(found, key=lambda row: row[:3])
    name = "held-out loss" if first.name == "eval_loss" else "loss"
    text = (
        f"the {name} is {first.value} from step {step} on, first at rank {rank} ({first.node}): training has diverged; "
        "a lower learning_rate or a clip_norm in the workload may help"
    )
    yield warned(NOT_FINITE, text, nodes=[first.node], rank=rank, step=step)


def _idle(record: RunRecord) -> Iterator[Warned]:
    """Yield a warning if a run without an error made no step or changed no weight."""
    if record.error is not None or (record.extra.get("resumed") or {}).get("step"):
        return
    if not any(steps_of(record)):
        text = (
            "the run has ended without a step: an algorithm records each, with `node.record(step=step, loss=loss)`, "
            "and the run's time must last for one"
        )
        yield warned(NO_STEP, text)
        return
    known = [node.changed for node in record.nodes if node.changed is not None]
    if known and not any(known):
        text = f"no weight has changed on any node: gradients change weights in `{INSTEAD['apply']}`"
        yield warned(UNTRAINED, text)
