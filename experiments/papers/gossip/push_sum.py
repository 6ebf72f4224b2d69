"""Agreement is not correctness: on directed graphs plain averaging agrees on the wrong mean, push-sum on the mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.papers.frame import Check, Lab, Paper, star
from experiments.papers.frame.apart import kicks
from experiments.papers.frame.lab import values
from simcluster.overlays import overlay_of

FRAME = Path(__file__).parent.parent / "frame"
SIZE = 4


def ring_with_chords(ranks: int) -> dict[str, Any]:
    """One way round, with three more edges: ranks 0 and 3 send to more than the others do."""
    around = [[rank, (rank + 1) % ranks] for rank in range(ranks)]
    return {"kind": "edges", "edges": [*around, [0, 2], [0, 4], [3, 1]], "directed": True}


def end(lab: Lab, ranks: int, algorithm: dict[str, Any]) -> tuple[np.ndarray[Any, Any], float | None]:
    """(rank 0's weights at the end, the largest distance of any rank from the mean where that is recorded)."""
    steps = lab.pick(100, 300)
    looks = {"consensus_every": steps} if "name" in algorithm else {}
    run = lab.run(
        topology=star([None] * ranks, latency="1 ms"),
        algorithm={**algorithm, **looks},
        workload={"path": f"{FRAME / 'apart.py'}:kicked", "ranks": ranks, "size": SIZE},
        stop={"steps": steps},
        evaluate_every=steps,
    )
    distances = values(run, "consensus")
    return run.weights()["x"].numpy(), max(distances) ** 0.5 if distances else None


def agreed_by_plain(overlay: Any, ranks: int) -> np.ndarray[Any, Any]:
    """pi^T x, where pi is the left eigenvector of the matrix that averages what comes in; x are the first steps."""
    graph = overlay_of(overlay, ranks, seed=0)
    matrix = np.zeros((ranks, ranks))
    for rank in range(ranks):
        taken = [rank, *graph.senders(rank)]
        matrix[rank, taken] = 1 / len(taken)
    agreed: np.ndarray[Any, Any] = np.linalg.matrix_power(matrix, 2000)[0] @ kicks(ranks, SIZE).numpy()
    return agreed


def close(name: str, expected: str, off: float) -> Check:
    return Check(name, expected, f"off by {off:.1g}", off <= 1e-9)


def measure(lab: Lab) -> Sequence[Check]:
    ranks = lab.pick(5, 8)
    mean, chords = kicks(ranks, SIZE).mean(0).numpy(), ring_with_chords(ranks)
    directed = {"a directed ring with chords": chords, "one-peer exponential": "one_peer_exponential"}
    checks = []
    for name, overlay in {**directed, **lab.pick({}, {"exponential": "exponential"})}.items():
        weights, distance = end(lab, ranks, {"name": "sgp", "overlay": overlay})
        assert distance is not None
        off = max(float(np.abs(weights - mean).max()), distance)
        checks.append(close(f"push-sum, {name}", "the mean on every rank, to 1e-9", off))
    plain, _ = end(lab, ranks, {"path": f"{FRAME / 'plain_gossip.py'}:plain_gossip", "overlay": chords})
    wrong = float(np.abs(plain - mean).max())
    return [
        *checks,
        close(
            "plain averaging, the same ring",
            "pi^T x, to 1e-9",
            float(np.abs(plain - agreed_by_plain(chords, ranks)).max()),
        ),
        Check("... and from the mean", "off by more than 0.03", f"off by {wrong:.2g}", wrong > 0.03),
    ]


PAPER = Paper(
    title="Push-sum on directed graphs",
    citation="Assran, Loizou, Ballas and Rabbat 2019. Stochastic gradient push for distributed deep learning (ICML), "
    "sections 2 and 3",
    claim="On a directed graph, pushing shares of a number along with those of the weights, and dividing by it, "
    "agrees on the mean. Averaging the received models agrees on a mean weighted by the left eigenvector pi, "
    "because a rank cannot know the share of its model that others take.",
    setting="`sgp` on 8 ranks: the first step moves every rank to a different random point, and later steps learn "
    "nothing, so after 300 rounds the ranks are where the averaging agrees. The baseline is a page of plain "
    "averaging (experiments/papers/frame/plain_gossip.py) on the same edges.",
    expected="With push-sum the mean, on all graphs, also on a ring with ranks that send to one, two or three "
    "others; without it pi^T x, which is another point.",
    measure=measure,
)
