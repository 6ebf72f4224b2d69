"""Claims about `d_psgd`: the loop over W and all ranks' models, in one process."""

from __future__ import annotations

from collections.abc import Sequence

from simcluster.overlays import overlay_of
from simcluster.overlays.overlay import Matrix
from simcluster.verify.claim import Claim, Identity, Settings, Variant, Weights
from simcluster.verify.faults import GOES_ON
from simcluster.verify.naive import born, gradients_of, output, times
from simcluster.workloads import Replica, Workload


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """X <- W X - eta G, or X <- W (X - eta G)."""
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


def payload_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """A model over every edge in every round, and a ring all-reduce whenever all take the mean."""
    graph = overlay_of(settings["overlay"], size, seed=0)
    edges = sum(len(graph.receivers(rank, number)) for number in range(steps) for rank in range(size))
    every = int(settings["consensus_every"])
    means = (steps // every if every else 0) + int(settings["output"] == "mean")
    return edges * model_bytes + means * 2 * (size - 1) * model_bytes


def mixing(size: int, number: int, settings: Settings) -> Matrix:
    return overlay_of(settings["overlay"], size, seed=0).matrix(number)


CLAIM = Claim(
    paper="Lian et al. 2017 (NeurIPS), algorithm 1",
    reference=reference,
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
    payload_bytes=payload_bytes,
    mixing=mixing,
    outcomes=GOES_ON,
)
