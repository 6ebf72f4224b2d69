"""Claims about streaming DiLoCo, and its reference without messages."""

from __future__ import annotations

from torch import Tensor

from simcluster.verify.claim import Claim, Identity, Settings, Weights
from simcluster.verify.faults import REFORMED
from simcluster.verify.naive import born, descend, ended, models_sent, outer_sgd, overwrite, vector, walk
from simcluster.workloads import Workload


def due(step: int, steps: int, p: int, settings: Settings) -> bool:
    """Whether fragment *p* of P starts to synchronise at *step*: fragments are offset by p/P of H."""
    H, P = settings["interval"], settings["fragments"]
    return step == steps or (step + p * H // P) % H == 0


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Replicas train in parallel; a fragment's result is held back until its overlap has passed."""
    replicas = born(workload, size, seed, steps)
    batches = [replica.batches() for replica in replicas]
    P, tau, alpha = settings["fragments"], settings["overlap"], settings["blend"]
    outer = [
        outer_sgd(piece, settings["outer_learning_rate"], settings["outer_momentum"])
        for piece in vector(replicas[0]).tensor_split(P)
    ]
    under_way: dict[int, tuple[int, Tensor]] = {}

    def end(p: int, kept: float) -> None:
        theta, optimizer = outer[p]
        descend(theta, optimizer, under_way.pop(p)[1])
        for replica in replicas:
            weights = vector(replica)
            piece = weights.tensor_split(P)[p]
            piece.copy_(kept * piece + (1 - kept) * theta.detach())
            overwrite(replica, weights)

    for step in range(1, steps + 1):
        for rank, replica in enumerate(replicas):
            walk(replica, batches[rank], 1)
        for p in range(P):
            turn = due(step, steps, p, settings)
            if p in under_way and (turn or step >= under_way[p][0] + tau):
                end(p, alpha)
            if turn:
                moved = [outer[p][0].detach() - vector(replica).tensor_split(P)[p] for replica in replicas]
                under_way[p] = step, sum(moved[1:], moved[0]) / size
                if step == steps or tau == 0:
                    end(p, 0.0 if step == steps else alpha)
    return ended(replicas)


def _bytes(size: int, model: int, steps: int, settings: Settings) -> int:
    # Fragments have equal size.
    turns = sum(due(step, steps, p, settings) for step in range(1, steps + 1) for p in range(settings["fragments"]))
    return models_sent(size, settings) * turns * model // int(settings["fragments"])


CLAIM = Claim(
    paper="Douillard et al. 2025, algorithm 2",
    settings={"interval": 4},
    reference=reference,
    reference_for=(
        {"overlap": 0, "schedule": "recursive_doubling"},
        {"overlap": 3, "fragments": 3},
        {"overlap": 9, "blend": 0.25},
        {"interval": 1},
    ),
    variants={
        "interval": 3,
        "fragments": 2,
        "overlap": 3,
        "blend": 0.0,
        "outer_learning_rate": 0.5,
        "outer_momentum": 0.5,
        "schedule": "direct",
        "compression": "fp16",
    },
    identities=(
        Identity(
            {"fragments": 1, "overlap": 0, "blend": 0.0},
            "diloco",
            {"interval": 4},
            exact=True,
            why="one fragment, no overlap",
        ),
        Identity({}, "streaming_diloco", {"compression": {"kind": "top_k", "fraction": 1.0}}, why="top-100 % = dense"),
    ),
    payload_bytes=_bytes,
    replicas_agree=True,
    outcomes=REFORMED,
)
