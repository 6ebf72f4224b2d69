"""Claims about gossip; the references loop over W and all ranks' models in one process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from simcluster.compression import Codec, compressor
from simcluster.lab.verify.claim import Claim, Identity, Settings, Variant, Weights
from simcluster.lab.verify.faults import APART, GOES_ON, REFORMED
from simcluster.lab.verify.naive import born, gradients_of, output, times
from simcluster.overlays import overlay_of
from simcluster.overlays.overlay import Matrix
from simcluster.rng import NodeRandom
from simcluster.workloads import Replica, Workload


def d_psgd(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights after steps X <- W X - eta G, or X <- W (X - eta G)."""
    graph = overlay_of(settings["overlay"], size, seed)
    replicas = born(workload, size, seed, steps)
    for number, gradients in enumerate(gradients_of(replicas)):
        if settings["order"] == "mix_then_step":
            _mix(graph.matrix(number), replicas)
        for replica, gradient in zip(replicas, gradients, strict=True):
            replica.apply(gradient)
        if settings["order"] == "step_then_mix":
            _mix(graph.matrix(number), replicas)
    return output([replica.parameters for replica in replicas], settings)


def _mix(matrix: Matrix, replicas: Sequence[Replica]) -> None:
    for replica, mixed in zip(replicas, times(matrix, [each.parameters for each in replicas]), strict=True):
        replica.load(mixed)


def d_psgd_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """Return the bytes that all ranks send.

    They are a model over every directed edge in every round, and a ring all-reduce for each mean.
    """
    graph = overlay_of(settings["overlay"], size, seed=0)
    edges = sum(len(graph.receivers(rank, number)) for number in range(steps) for rank in range(size))
    every = int(settings["consensus_every"])
    means = (steps // every if every else 0) + int(settings["output"] == "mean")
    return edges * model_bytes + means * 2 * (size - 1) * model_bytes


def d_psgd_matrix(size: int, number: int, settings: Settings) -> Matrix:
    return overlay_of(settings["overlay"], size, seed=0).matrix(number)


D_PSGD = Claim(
    paper="Lian et al. 2017 (NeurIPS), algorithm 1",
    reference=d_psgd,
    reference_for=[
        {"overlay": "one_peer_exponential"},
        {"overlay": "star", "order": "step_then_mix"},
        {"output": "mean"},
    ],
    variants={"overlay": "line", "order": "step_then_mix", "consensus_every": 2, "output": Variant("mean")},
    identities=[
        Identity(
            {"overlay": "complete", "order": "step_then_mix"},
            "all_reduce_dp",
            why="the mean of all models after equal ones took their steps",
        ),
        Identity({"overlay": "complete", "order": "step_then_mix"}, "one process"),
        Identity(
            {"order": "step_then_mix"}, "sgp", {"overlay": "ring"}, why="with doubly stochastic W, push-sum is gossip"
        ),
    ],
    payload_bytes=d_psgd_bytes,
    mixing=d_psgd_matrix,
    outcomes={**GOES_ON, **APART},
)


def ad_psgd_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """Return the bytes that all ranks send.

    In every step, each asking rank sends a model and gets one. A final mean takes a ring
    all-reduce.
    """
    asked = steps * len(overlay_of(settings["overlay"], size, seed=0).asking) if size > 1 else 0
    return 2 * asked * model_bytes + (2 * (size - 1) * model_bytes if settings["output"] == "mean" else 0)


def ad_psgd_matrix(size: int, number: int, settings: Settings) -> Matrix:
    """Return the matrix that averages one pair of ranks.

    From round to round, the pairs of asking ranks take turns.
    """
    graph = overlay_of(settings["overlay"], size, seed=0)
    pairs = [(a, b) for a in sorted(graph.asking) for b in graph.neighbours(a) if b not in graph.asking]
    matrix = np.eye(size)
    if pairs:
        pair = list(pairs[number % len(pairs)])
        matrix[np.ix_(pair, pair)] = 0.5
    return matrix


# There is no reference: partners are random and depend on timing, so no simple loop is equivalent.
AD_PSGD = Claim(
    paper="Lian et al. 2018 (ICML), algorithm 1 and section 3",
    order_free=False,
    variants={"overlay": "star", "output": "mean"},
    payload_bytes=ad_psgd_bytes,
    mixing=ad_psgd_matrix,
    # A restarted rank rejoins: the others answer it, and ask it again once it answers.
    outcomes={**REFORMED, **APART},
)

LOPSIDED = {"kind": "edges", "edges": [[0, 1], [1, 2], [2, 0], [0, 2]], "directed": True}
"""An overlay of three ranks, in which rank 0 has more outgoing than incoming edges."""


def sgp(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights Z after steps X <- P (X - eta G(Z)), w <- P w, Z = X / w.

    With the output "mean", return the mean of X instead.
    """
    graph = overlay_of(settings["overlay"], size, seed)
    replicas = born(workload, size, seed, steps)
    x = [replica.snapshot() for replica in replicas]
    w = [[torch.ones(1, dtype=torch.float64)] for _ in replicas]
    for number, all_gradients in enumerate(gradients_of(replicas)):
        for replica, biased, gradients in zip(replicas, x, all_gradients, strict=True):
            replica.load(biased)
            replica.apply(gradients)
        matrix = graph.push_matrix(number)
        x, w = times(matrix, [replica.parameters for replica in replicas]), times(matrix, w)
        for replica, biased, (weight,) in zip(replicas, x, w, strict=True):
            replica.load([tensor / weight.item() for tensor in biased])
    return output(x if settings["output"] == "mean" else [replica.parameters for replica in replicas], settings)


def sgp_matrix(size: int, number: int, settings: Settings) -> Matrix:
    return overlay_of(settings["overlay"], size, seed=0).push_matrix(number)


SGP = Claim(
    paper="Assran et al. 2019 (ICML), algorithm 1",
    reference=sgp,
    reference_for=[{"overlay": LOPSIDED}, {"overlay": "star"}, {"output": "mean"}],
    variants={"overlay": "ring", "consensus_every": 2, "output": "mean"},
    identities=[
        Identity(
            {"overlay": "ring"},
            "d_psgd",
            {"overlay": "ring", "order": "step_then_mix"},
            why="with doubly stochastic W, push-sum is gossip",
        ),
        Identity({"overlay": "complete"}, "all_reduce_dp", why="every rank has an equal share of every other"),
    ],
    payload_bytes=d_psgd_bytes,
    mixing=sgp_matrix,
    column_stochastic=True,
    outcomes={**GOES_ON, **APART},
)


def gradient_tracking(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights X after steps Y <- W Y + G - G_old, X <- W X - eta Y."""
    graph = overlay_of(settings["overlay"], size, seed)
    replicas = born(workload, size, seed, steps)
    y = [[torch.zeros_like(tensor) for tensor in replica.parameters] for replica in replicas]
    old = y
    for number, new in enumerate(gradients_of(replicas)):
        matrix = graph.matrix(number)
        y = [
            [mixed + now - before for mixed, now, before in zip(*three, strict=True)]
            for three in zip(times(matrix, y), new, old, strict=True)
        ]
        old = new
        x = times(matrix, [replica.parameters for replica in replicas])
        for replica, mixed, estimate in zip(replicas, x, y, strict=True):
            replica.load(mixed)
            replica.apply(estimate)
    return output([replica.parameters for replica in replicas], settings)


def gradient_tracking_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """Return the bytes that all ranks send.

    A round takes twice the bytes of D-PSGD, for weights and for estimates; a mean takes the same
    bytes as in D-PSGD.
    """
    rounds = d_psgd_bytes(size, model_bytes, steps, {**settings, "consensus_every": 0, "output": "local"})
    return rounds + d_psgd_bytes(size, model_bytes, steps, settings)


GRADIENT_TRACKING = Claim(
    paper="Nedic, Olshevsky and Shi 2017 (SIAM J. Optim.), section 2",
    reference=gradient_tracking,
    reference_for=[{"overlay": "one_peer_exponential"}, {"overlay": "star"}, {"output": "mean"}],
    variants={"overlay": "line", "consensus_every": 2, "output": "mean"},
    payload_bytes=gradient_tracking_bytes,
    mixing=d_psgd_matrix,
    outcomes={**GOES_ON, **APART},
)

TOP = {"kind": "top_k", "fraction": 0.25, "error_feedback": False}


def choco_sgd(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights X after steps with a deterministic compression Q.

    A step is X <- X - eta G, X^ <- X^ + Q(X - X^), X <- X + gamma (W - I) X^.
    """
    correction = overlay_of(settings["overlay"], size, seed).matrix() - np.eye(size)
    replicas = born(workload, size, seed, steps)
    copies = [replica.snapshot() for replica in replicas]
    codecs = [Codec(compressor(settings["compression"]), NodeRandom(seed, ""), "", copy) for copy in copies]
    for all_gradients in gradients_of(replicas):
        for replica, copy, codec, gradients in zip(replicas, copies, codecs, all_gradients, strict=True):
            replica.apply(gradients)
            sent = codec.encode([mine - old for mine, old in zip(replica.parameters, copy, strict=True)])
            for old, moved in zip(copy, codec.decode(sent), strict=True):
                old.add_(moved)
        for replica, towards in zip(replicas, times(correction, copies), strict=True):
            replica.load([x + settings["gamma"] * t for x, t in zip(replica.parameters, towards, strict=True)])
    return output([replica.parameters for replica in replicas], settings)


CHOCO_SGD = Claim(
    paper="Koloskova, Stich and Jaggi 2019 (ICML), algorithm 2",
    reference=choco_sgd,
    reference_for=[{"compression": TOP, "gamma": 0.4}, {"overlay": "star", "gamma": 0.7}, {"output": "mean"}],
    variants={"overlay": "line", "compression": "int8", "gamma": 0.5, "consensus_every": 2, "output": "mean"},
    identities=[
        Identity({}, "d_psgd", {"order": "step_then_mix"}, why="uncompressed, copies are the models themselves"),
        Identity({"overlay": "complete"}, "all_reduce_dp", why="D-PSGD on the complete graph"),
    ],
    payload_bytes=d_psgd_bytes,
    mixing=d_psgd_matrix,
    outcomes={**GOES_ON, **APART},
)
