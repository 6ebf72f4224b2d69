"""The warnings of a run: what makes its result doubtful, in words for its user.

They are a list in summary.json, from where the terminal, the report, comparisons and `Run.warnings` take them. A run
without any has no such list.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from simcluster.runs.record import NodeRecord, Noticed, RunRecord
from simcluster.runs.steps import steps_of

OUTSIDE: Final = "outside_compute"
NO_TIME: Final = "no_time"
NOT_AWAITED: Final = "not_awaited"
NOT_FINITE: Final = "not_finite"
SHARED: Final = "shared_state"
SYSTEM: Final = "system_randomness"
NO_STEP: Final = "no_step"
UNTRAINED: Final = "untrained"

LOSSES = ("loss", "eval_loss")
MOST_PLACES, MOST_TEXT = 10, 1000

INSTEAD = {
    "loss_and_gradients": "loss, gradients = await node.compute(replica.loss_and_gradients, batch, "
    "cost=replica.gradient_cost(batch))",
    "apply": "await node.compute(replica.apply, gradients, cost=replica.apply_cost())",
}
"""Methods of a replica that are work, and the line that gives it to the node's device."""

METHODS = {"node": ("send", "recv", "compute", "exchange"), "replica": ("checkpoint",)}

Warned = dict[str, Any]
"""A warning: *kind*, *text*, and where known the *nodes*, the *step* and the place *at* in the user's code."""


def doubts_of(record: RunRecord, *, computes: bool = True) -> list[Warned]:
    """Return the warnings of the run that *record* tells of; *computes*: it has losses, unlike a timing-only run."""
    losses = _not_finite(record.nodes) if computes else ()
    found = [*_noticed(record), *_no_time(record), *losses, *record.extra.get(SHARED, ())]
    return found + ([] if found and record.error is not None else [*_idle(record)])


def warned(kind: str, text: str, **more: Any) -> Warned:
    return {"kind": kind, "text": text[:MOST_TEXT], **more}


def _noticed(record: RunRecord) -> Iterator[Warned]:
    """Yield a warning per line of user code, whichever nodes ran it."""
    by_place: dict[Noticed, list[tuple[str, int]]] = {}
    rows = [(node.name, row) for node in record.nodes for row in node.noticed]
    for name, row in rows + [("", row) for row in record.extra.get("noticed", ())]:
        by_place.setdefault(row._replace(times=0), []).append((name, row.times))
    for row, found in list(by_place.items())[:MOST_PLACES]:
        names, count = [name for name, _ in found if name], sum(count for _, count in found)
        where, times = row.at or "the algorithm", "once" if count == 1 else f"{count:,} times"
        if row.kind == OUTSIDE:
            text = (
                f"{where} calls replica.{row.what} outside node.compute, {times}: such work takes no virtual time and "
                f"no energy, and on real nodes it blocks the node; write {INSTEAD.get(row.what, '')}"
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


def _as_written(name: str) -> str:
    """Return a method of ours, `Node.send`, as an algorithm writes it; other names as they are."""
    _, dot, method = name.rpartition(".")
    variable = next((variable for variable, methods in METHODS.items() if method in methods), "")
    return f"{variable}.{method}" if dot and variable else name


def _no_time(record: RunRecord) -> Iterator[Warned]:
    outside = any(row.kind == OUTSIDE for node in record.nodes for row in node.noticed)
    changed = [node.name for node in record.nodes if node.changed]
    if changed and not outside and all(node.compute_s == 0 for node in record.nodes):
        text = (
            "weights have changed, but no device has worked: time and energy count only the work in "
            "`await node.compute(work, ..., cost=...)` whose cost is above zero"
        )
        yield warned(NO_TIME, text, nodes=changed)


def _not_finite(nodes: Sequence[NodeRecord]) -> Iterator[Warned]:
    """Yield the first loss, in the run's time, that is infinite or not a number."""
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
    """Yield that a run has ended well without a step, or without training."""
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
