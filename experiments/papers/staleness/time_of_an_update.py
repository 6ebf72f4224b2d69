"""What an update takes when workers straggle: synchronous and asynchronous SGD, and what lies between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from experiments.papers.frame import BOWL, Check, Lab, Paper, agrees, exceeds, served
from experiments.papers.frame.lab import curve

P = 8
EXPONENTIAL = {"kind": "exponential"}
SHIFTED = {"kind": "shifted-exponential", "mean": 1.0}


def harmonic(n: int) -> float:
    return math.fsum(1 / i for i in range(1, n + 1))


def update_s(lab: Lab, updates: int, algorithm: dict[str, Any], straggler: dict[str, Any] = EXPONENTIAL) -> float:
    """Seconds of an update of the server's weights, on average over the first *updates*."""
    in_step = algorithm["name"] == "k_sync"
    per_update = algorithm.get("k", 1)
    run = lab.run(
        topology=served([straggler] * P),
        algorithm={**algorithm, "server_trains": False},
        workload={"path": BOWL},
        # Who waits for nobody ends with its own batches: 1.5 times its share, so that none does before it is seen.
        stop={"steps": updates if in_step else math.ceil(1.5 * updates * per_update / P)},
        numerics="none",
    )
    return next(t for t, applied in curve(run, "applied", "n0") if applied >= updates * per_update) / updates


def kth(lab: Lab, n: int, words: str, name: str, k: int) -> Check:
    """The K-th of P exponentials: independent gaps of rates P, P-1, ..., P-K+1; within 3 standard errors."""
    expected_s = harmonic(P) - harmonic(P - k)
    error_s = 3 * math.sqrt(math.fsum(1 / i**2 for i in range(P - k + 1, P + 1)) / n)
    return agrees(f"{words}, K = {k}", update_s(lab, n, {"name": name, "k": k}), expected_s, error_s, " s")


def in_batch(lab: Lab, n: int, words: str, name: str, k: int) -> Check:
    """K exponentials of rate P, one after another."""
    ours_s = update_s(lab, n, {"name": name, "k": k, "batch": True})
    return agrees(f"{words}, K = {k}", ours_s, k / P, 3 * math.sqrt(k / P**2 / n), " s")


def times(lab: Lab, n: int) -> list[Check]:
    # Memoryless workers who go on with old work are as far as those who begin anew: K-async takes what K-sync does.
    return [
        *(kth(lab, n, "K-sync", "k_sync", k) for k in lab.pick((4, P), (1, 2, 4, 6, P))),
        *(kth(lab, n, "K-async", "k_async", k) for k in lab.pick((4,), (2, 4, 6))),
        *(in_batch(lab, n, "K-batch-sync", "k_sync", k) for k in lab.pick((4,), (4, 2 * P))),
        *(in_batch(lab, n, "K-batch-async", "k_async", k) for k in lab.pick((4,), (4, P))),
    ]


def measure(lab: Lab) -> Sequence[Check]:
    n = lab.pick(120, 1500)
    checks = times(lab, n)
    sync_s = update_s(lab, n, {"name": "k_sync", "k": P})
    async_s = update_s(lab, n * P, {"name": "edp"})
    ratio = P * harmonic(P)
    variances = math.fsum(1 / i**2 for i in range(1, P + 1)) / harmonic(P) ** 2 / n + 1 / (n * P)
    checks.append(agrees("async", async_s, 1 / P, 3 / P / math.sqrt(n * P), " s"))
    checks.append(agrees("updates of async to one of sync", sync_s / async_s, ratio, 3 * ratio * math.sqrt(variances)))
    # Times that are "new longer than used": stale work is nearer to its end, so K-async is faster.
    fresh_s, stale_s = (update_s(lab, n, {"name": name, "k": 4}, SHIFTED) for name in ("k_sync", "k_async"))
    return [
        *checks,
        exceeds("K-sync above K-async where times are 1 s and an exponential, K = 4", fresh_s, stale_s, " s"),
    ]


PAPER = Paper(
    title="The time of an update: K-sync, K-async and their batch forms",
    citation="Dutta, Joshi, Ghosh, Dube and Nagpurkar 2018. Slow and Stale Gradients Can Win the Race (AISTATS), "
    "section 3",
    claim="With P workers and exponential gradient times of mean 1/mu, K-sync takes (H_P - H_(P-K))/mu per update, "
    "K-batch-sync and K-batch-async K/(P mu), async 1/(P mu): sync is P H_P times slower than async. K-async is "
    "never slower than K-sync, and faster if work already begun is nearer to its end.",
    setting=f"`k_sync`, `k_async` and `edp` with P = {P} workers and a server that only serves; mu = 1/s; a network "
    "that takes no time; nothing is computed, since nothing depends on values. 1,500 updates each (the tests: 120).",
    expected="The closed forms, within 3 standard errors; for exponential times K-async takes as long as K-sync.",
    measure=measure,
)
