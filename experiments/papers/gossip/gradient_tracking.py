"""Gossip with a constant step ends beside the optimum where ranks differ; tracking the mean gradient ends in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.papers.frame import Check, Lab, Paper, star
from experiments.papers.frame.apart import curvatures_and_centres
from simcluster.overlays import overlay_of

APART = Path(__file__).parent.parent / "frame" / "apart.py"
SIZE = 4
Vector = np.ndarray[Any, Any]


def end(lab: Lab, name: str, overlay: str, ranks: int, eta: float) -> Vector:
    """Rank 0's weights when hardly anything moves any more."""
    steps = lab.pick(200, 500)
    run = lab.run(
        topology=star([None] * ranks, latency="1 ms"),
        algorithm={"name": name, "overlay": overlay},
        workload={"path": f"{APART}:bowls", "ranks": ranks, "size": SIZE, "learning_rate": eta},
        stop={"steps": steps},
        evaluate_every=steps,
    )
    weights: Vector = run.weights()["x"].numpy()
    return weights


def optimum(ranks: int) -> Vector:
    """Of the mean of all ranks' quadratics."""
    curvatures, centres = curvatures_and_centres(ranks, SIZE)
    best: Vector = ((curvatures * centres).sum(0) / curvatures.sum(0)).numpy()
    return best


def fixed_point(overlay: str, ranks: int, eta: float) -> Vector:
    """Where x = W x - eta A (x - b) on rank 0, a linear system for each coordinate."""
    curvatures, centres = (each.numpy() for each in curvatures_and_centres(ranks, SIZE))
    pull = np.eye(ranks) - overlay_of(overlay, ranks, seed=0).matrix()
    each = [np.linalg.solve(pull + eta * np.diag(a), eta * a * b) for a, b in zip(curvatures.T, centres.T, strict=True)]
    return np.stack(each)[:, 0]


def measure(lab: Lab) -> Sequence[Check]:
    ranks, eta = lab.pick(4, 6), 0.1
    best = optimum(ranks)
    checks, bias = [], {}
    for overlay in lab.pick(("ring",), ("ring", "star")):
        gossip, tracked = (end(lab, name, overlay, ranks, eta) for name in ("d_psgd", "gradient_tracking"))
        bias[overlay] = float(np.abs(gossip - best).max())
        checks += [
            close(f"D-PSGD, {overlay}", "at its fixed point", gossip, fixed_point(overlay, ranks, eta)),
            Check(f"... from the optimum, {overlay}", "more than 0.01", f"{bias[overlay]:.3f}", bias[overlay] > 0.01),
            close(f"gradient tracking, {overlay}", "in the optimum", tracked, best),
        ]
    if lab.full:
        less = float(np.abs(end(lab, "d_psgd", "ring", ranks, eta / 5) - best).max()) / bias["ring"]
        checks.append(Check("D-PSGD's distance at a fifth of the step", "below 0.4 of it", f"{less:.2f}", less < 0.4))
    return checks


def close(name: str, where: str, ours: Vector, expected: Vector) -> Check:
    off = float(np.abs(ours - expected).max())
    return Check(name, f"{where}, to 1e-9", f"off by {off:.1g}", off <= 1e-9)


PAPER = Paper(
    title="Gradient tracking removes the bias of gossip",
    citation="Nedic, Olshevsky and Shi 2017. Achieving geometric convergence for distributed optimization over "
    "time-varying graphs (SIAM Journal on Optimization), with Yuan, Ling and Yin 2016, On the convergence of "
    "decentralized gradient descent (SIAM Journal on Optimization)",
    claim="With an estimate of the mean gradient passed along, decentralized gradient descent with a constant step "
    "converges to the optimum at a geometric rate, even if ranks have different objectives; without it, the "
    "limit differs from the optimum by the order of the step.",
    setting="6 ranks with different quadratics (curvatures 0.5 to 2, normal minima), exact gradients, a step of 0.1. "
    "`d_psgd` and `gradient_tracking` with Metropolis weights, on a ring and a star. The fixed point of the "
    "first solves (I - W + eta A) x = eta A b.",
    expected="D-PSGD ends at its fixed point, to 1e-9, which is not the optimum but approaches it with smaller "
    "steps; gradient tracking ends in the optimum, to 1e-9.",
    measure=measure,
)
