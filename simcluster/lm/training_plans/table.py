"""A training plan as text with at most 80 columns."""

from __future__ import annotations

import json
from collections.abc import Iterator

from simcluster.lm.plan.table import about, grouped, percent, rounded, some, usable, wrapped
from simcluster.lm.training_plans.plan import ImpossibleTraining, PlanRow, TrainingPlan
from simcluster.topology.idle_links import idle_words
from simcluster.units import format_latency


def lines(plan: TrainingPlan) -> Iterator[str]:
    """Yield the lines of *plan*: the model, the ranking, unused nodes, the best row's memory."""
    shape = plan.shape
    head = f"training {shape.name} on {plan.topology.name}: {shape.weights / 1e9:.3g} billion weights, AdamW, "
    yield from wrapped(f"{head}32 bits; {plan.samples} samples of {plan.tokens} tokens in a step")
    for line in (*usable(plan.topology), *idle_words(plan.topology)):
        yield from wrapped(line)
    yield ""
    yield f"{'training':<19}  tokens/s       step  computing  bytes per step"
    for row in plan.rows:
        yield from _row(plan, row)
    if not plan.rows:
        yield "  nothing fits"
    if plan.less_often:
        yield "exchanging less often, which learns something else from the same samples"
    for row in plan.less_often:
        yield from _row(plan, row)
    best = plan.rows[0].samples_per_s if plan.rows else 0.0
    yield from grouped("left out", [(name, _with(rate, best)) for name, rate in plan.left_out])
    yield from grouped("no", [(one.label, _why(one)) for one in plan.refused])
    if plan.rows:
        yield from wrapped(_held(plan.rows[0]), "  ")


def _row(plan: TrainingPlan, row: PlanRow) -> Iterator[str]:
    step = row.step
    candidate = row.candidate
    sizes: dict[str, list[str]] = {}
    for part in row.parts:
        words = f"{part.samples} samples, " if candidate.splits_samples else ""
        sizes.setdefault(f"{words}{about(part.memory.total)}", []).append(part.node)
    computing = f"{100 * min(1.0, step.compute_s / step.step_s):.3g} %"
    yield (
        f"  {candidate.label:<17}  {rounded(row.samples_per_s * plan.tokens):>8}  {format_latency(step.step_s):>9}"
        f"  {computing:>9}  {about(step.sent_bytes):>14}"
    )
    nodes = [f"{some(names)}: {words}" for words, names in sizes.items()]
    # As in a file: {data: 1, expert: 8}
    settings = [f"{name} {json.dumps(value)}".replace('"', "") for name, value in candidate.told.items()]
    yield from wrapped("; ".join((*settings, *nodes)), " " * 6, " " * 6)


def _held(row: PlanRow) -> str:
    """Describe the memory of the fullest node of *row*."""
    part = max(row.parts, key=lambda part: part.memory.total)
    names = ("weights", "gradients", "optimizer", "activations", "messages")
    sizes = {name: getattr(part.memory, name) for name in names}
    sizes["other"] = part.memory.total - sum(sizes.values())
    listed = ", ".join(f"{name} {about(size)}" for name, size in sizes.items() if size)
    return f"{part.node} holds for {row.candidate.label}: {listed}"


def _why(refused: ImpossibleTraining) -> str:
    if refused.missing_bytes is None:
        return refused.why
    return f"{about(refused.missing_bytes)} missing on {refused.node}"


def _with(rate: float | None, best: float) -> str:
    if rate is None:
        return "no training with it fits"
    return "no slower with it" if rate >= best else f"{percent(1 - rate / best)} slower with it"
