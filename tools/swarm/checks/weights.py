"""Invariants of training: equal replicas, the promised bits, finite losses, bounded staleness."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from simcluster.fault_plans.kinds import Join, Restart
from simcluster.lab.verify.claims import claim_about
from simcluster.runs.folder import FINAL_PATH
from simcluster.runs.record import NodeRecord
from tools.swarm.checks.outcome import Found
from tools.swarm.hits import Hits
from tools.swarm.play import Played
from tools.swarm.promise import are_unequal, is_exact, restores_bits

CLOSE = 1e-9
"""The relative tolerance for sums of float64 in a different order."""
OFF = 40.0
"""The limit on the loss relative to the weights' square.

The ratio is about 1 if the model subtracts the mean of the inputs, and about 300 otherwise.
"""


def check_weights(played: Played, before: Played, hits: Hits) -> Found:
    """Yield each broken invariant of the weights. *before* is the undisturbed run."""
    if not played.is_done:
        return
    assert played.record is not None
    by_time = hits.plan.time_s is not None
    if not by_time:
        yield from _agreement(played, before, hits)
        found, expected = (run.summary["weights_sha256"] for run in (played, before))
        if same_bits(played, hits) and found != expected:
            yield "the bits of the undisturbed run", f"{found}, not {expected}"
        elif played.case.is_sloped and _same_slope(played, hits):
            yield from _slope(played, before)
    loss, expected = played.summary["loss"], before.summary["loss"]
    if expected is not None and math.isfinite(expected) and (loss is None or not math.isfinite(loss)):
        yield "the loss is finite", f"{loss}, and {expected} undisturbed"
    yield from check_judged(played, hits)
    yield from _staleness(played)
    assert before.record is not None
    took_s, expected_s = played.record.elapsed_s, before.record.elapsed_s
    if not hits.happened and not by_time and abs(took_s - expected_s) > 1e-9:
        yield "no fault, no change", f"{took_s} s, not {expected_s} s"


def agrees(algorithm: str) -> bool:
    """Return whether *algorithm* claims that all ranks end with the same weights."""
    claim = claim_about(algorithm)
    return claim is not None and bool(claim.replicas_agree)


def _agreement(played: Played, before: Played, hits: Hits) -> Found:
    case = played.case
    if not agrees(case.algorithm) or len(set(_digests(before, before.record.nodes))) > 1:  # type: ignore[union-attr]
        return
    if case.algorithm in ("k_async", "ssp") and hits.of(Restart, Join):
        return  # a rank that joins late still has batches when the others have none
    assert played.record is not None
    nodes = [node for node in played.record.nodes if node.name not in played.lost]
    for number in {node.group_number for node in nodes}:
        group = [node for node in nodes if node.group_number == number]
        if len(set(_digests(played, group))) > 1:
            told = {node.name: (node.weights_sha256 or "")[:8] for node in group}
            yield "survivors agree", f"group {number}: {told}"


def _digests(played: Played, nodes: list[NodeRecord]) -> Iterator[str]:
    return (played.summary["nodes"][node.name]["weights_sha256"] for node in nodes)


def same_bits(played: Played, hits: Hits) -> bool:
    """Return whether the weights must have the same bits as those of the undisturbed run."""
    if not is_exact(played.case):
        return not hits.happened and "restarts" not in played.summary
    began_again = "restarts" in played.summary and not played.summary.get("regroups")
    return hits.are_harmless or (began_again and not played.lost and restores_bits(played.case, hits))


def _same_slope(played: Played, hits: Hits) -> bool:
    """Return whether a run with equal gradients must end with the weights of the
    undisturbed run.
    """
    case = played.case
    if case.is_noisy:
        return False  # each rank draws different noise
    if are_unequal(hits) and hits.may_be_lost:
        return False  # d_psgd scales each step by the rank's share of the samples
    if not is_exact(case) or case.settings.get("compression", "none") != "none" or "epochs" in case.document["stop"]:
        return False
    if case.algorithm == "streaming_diloco" and played.summary.get("regroups"):
        return False  # a fragment in flight is dropped, and with it a step of the outer optimizer
    # After the loss of a rank, the shares of sgp's other ranks differ: only their mean is promised.
    return not (case.algorithm in ("k_async", "ssp", "easgd", "sgp") and hits.may_be_lost)


def _slope(played: Played, before: Played) -> Found:
    found, expected = (torch.cat([part.flatten() for part in _final(run).values()]) for run in (played, before))
    apart = float((found - expected).abs().max())
    if apart > CLOSE * max(1.0, float(expected.abs().max())):
        yield "a mean of equal gradients is that gradient", f"weights are {apart:.3g} from those of the undisturbed run"


def _final(played: Played) -> dict[str, torch.Tensor]:
    import simcluster

    return simcluster.load_run(played.folder).weights()


def check_judged(played: Played, hits: Hits) -> Found:
    """Check that the run's loss belongs to its weights and buffers. One node provides both."""
    summary = played.summary
    if played.case.is_normed:
        yield from _normed(played)
    workload = hits.plan.workload.with_recipe({"weights": str(played.folder / FINAL_PATH)})
    loss = float(workload.replica(0, len(summary["nodes"]), hits.plan.seed, steps=1).evaluate()["loss"])
    if summary["loss"] != loss and not math.isnan(loss):
        yield "the loss is that of the weights", f"{summary['loss']} in the summary, and the final weights have {loss}"


def _normed(played: Played) -> Found:
    """Check, by the loss, that the running mean is the data's mean."""
    weights = torch.cat([part.flatten() for part in _final(played).values()])
    squares = float(weights.square().sum())
    if not bool((weights == 1).all()) and squares * OFF + 1 < played.summary["loss"]:
        yield (
            "buffers are those of what was trained",
            f"loss {played.summary['loss']:.4g} of weights {weights.tolist()}",
        )


def _staleness(played: Played) -> Found:
    """Check that the staleness of applied pushes is within its bound.

    A server also records the staleness of pushes that it rejects, which has no bound.
    """
    settings = played.case.settings
    bound = settings.get("max_staleness")
    assert played.record is not None
    if bound is not None and played.case.algorithm == "edp":
        server = played.record.nodes[0]
        rejected = {(m.time_s, m.step) for m in server.metrics if m.name == "rejected"}
        for metric in server.metrics:
            if metric.name == "staleness" and metric.value > bound and (metric.time_s, metric.step) not in rejected:
                yield "staleness is bounded", f"{metric.value} > {bound} was applied"
    if played.case.algorithm == "ssp" and settings.get("staleness", 3) is not None:
        bound = settings.get("staleness", 3) + 1
        leads = [value for _, _, value in played.values("lead")]
        if leads and max(leads) > bound:
            yield "staleness is bounded", f"the fastest leads by {max(leads)} clocks, at most {bound} are allowed"
