"""Claims about DiLoCo and related algorithms, and their references without messages."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simcluster.lab.verify.claim import Claim, Identity, Settings, Variant, Weights
from simcluster.lab.verify.faults import REFORMED, SERVED
from simcluster.lab.verify.naive import (
    BY_PLACE,
    account,
    born,
    ended,
    mean,
    models_sent,
    outer_sgd,
    overwrite,
    rounds,
    up_and_down,
    vector,
    walk,
)
from simcluster.workloads import Workload


def diloco(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights of replicas that train from theta, and then from each new theta.

    torch's own Nesterov moves theta along the mean of the replicas' changes.
    """
    replicas = born(workload, size, seed, steps)
    batches = [replica.batches() for replica in replicas]
    theta, step = outer_sgd(vector(replicas[0]), settings["outer_learning_rate"], settings["outer_momentum"])
    for _ in range(0, steps, settings["interval"]):
        for rank, replica in enumerate(replicas):
            walk(replica, batches[rank], settings["interval"])
        step(torch.stack([theta - vector(replica) for replica in replicas]).mean(0))
        for replica in replicas:
            overwrite(replica, theta)
    return ended(replicas)


def diloco_bytes(size: int, model: int, steps: int, settings: Settings) -> int:
    return models_sent(size, settings) * rounds(steps, settings["interval"]) * model


DILOCO = Claim(
    paper="Douillard et al. 2023, algorithm 1",
    settings={"interval": 3},
    reference=diloco,
    reference_for=(
        {"interval": 1},
        {"outer_momentum": 0.0},
        {"schedule": "halving_doubling"},
        {"schedule": "hierarchical"},
    ),
    variants={
        "interval": 2,
        "outer_learning_rate": 0.5,
        "outer_momentum": 0.5,
        "schedule": "direct",
        **BY_PLACE,
        "compression": "int8",
    },
    identities=(
        Identity(
            {"outer_learning_rate": 1.0, "outer_momentum": 0.0},
            "local_sgd",
            {"interval": 3},
            why="plain outer SGD of rate 1 takes the mean",
        ),
        Identity(
            {"interval": 1, "outer_learning_rate": 1.0, "outer_momentum": 0.0},
            "one process",
            why="plain steps, averaged one by one",
        ),
        Identity({}, "diloco", {"compression": {"kind": "top_k", "fraction": 1.0}}, why="top-100 % = dense"),
    ),
    payload_bytes=diloco_bytes,
    replicas_agree=True,
    outcomes=REFORMED,
)


def due(step: int, steps: int, p: int, settings: Settings) -> bool:
    """Return whether the synchronisation of fragment *p* starts at *step*.

    With P fragments and an interval of H steps, the offset of a fragment is p/P of H.
    """
    H, P = settings["interval"], settings["fragments"]
    return step == steps or (step + p * H // P) % H == 0


def streaming_diloco(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights of replicas that train in parallel and synchronise one fragment at a time.

    The result for a fragment is applied *overlap* steps after its synchronisation starts.
    """
    replicas = born(workload, size, seed, steps)
    batches = [replica.batches() for replica in replicas]
    P = settings["fragments"]
    tau = settings["overlap"]
    alpha = settings["blend"]
    outer = [
        outer_sgd(piece, settings["outer_learning_rate"], settings["outer_momentum"])
        for piece in vector(replicas[0]).tensor_split(P)
    ]
    under_way: dict[int, tuple[int, Tensor]] = {}

    def end(p: int, kept: float) -> None:
        theta, move = outer[p]
        move(under_way.pop(p)[1])
        for replica in replicas:
            weights = vector(replica)
            piece = weights.tensor_split(P)[p]
            piece.copy_(kept * piece + (1 - kept) * theta)
            overwrite(replica, weights)

    for step in range(1, steps + 1):
        for rank, replica in enumerate(replicas):
            walk(replica, batches[rank], 1)
        for p in range(P):
            turn = due(step, steps, p, settings)
            if p in under_way and (turn or step >= under_way[p][0] + tau):
                end(p, alpha)
            if turn:
                moved = [outer[p][0] - vector(replica).tensor_split(P)[p] for replica in replicas]
                under_way[p] = step, mean(moved)
                if step == steps or tau == 0:
                    end(p, 0.0 if step == steps else alpha)
    return ended(replicas)


def streaming_diloco_bytes(size: int, model: int, steps: int, settings: Settings) -> int:
    # Fragments have equal sizes, so each synchronisation sends 1/P of the model.
    turns = sum(due(step, steps, p, settings) for step in range(1, steps + 1) for p in range(settings["fragments"]))
    return models_sent(size, settings) * turns * model // int(settings["fragments"])


STREAMING_DILOCO = Claim(
    paper="Douillard et al. 2025, algorithm 2",
    settings={"interval": 4},
    reference=streaming_diloco,
    reference_for=(
        {"overlap": 0, "schedule": "recursive_doubling"},
        {"overlap": 3, "fragments": 3},
        {"overlap": 9, "blend": 0.25},
        {"interval": 1},
        {"schedule": "hierarchical"},
    ),
    variants={
        "interval": 3,
        "fragments": 2,
        "overlap": 3,
        "blend": 0.0,
        "outer_learning_rate": 0.5,
        "outer_momentum": 0.5,
        "schedule": "direct",
        **BY_PLACE,
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
    payload_bytes=streaming_diloco_bytes,
    replicas_agree=True,
    outcomes=REFORMED,
)


def delayed_nesterov(
    theta: Tensor, arrivals: Sequence[Tensor], epsilon: float, beta: float, N: int, c: float
) -> list[Tensor]:
    """Return theta after each of *arrivals*, computed step by step as in the paper."""
    m = gathered = torch.zeros_like(theta)
    after = []
    for t, delta in enumerate(arrivals):
        gathered = gathered + delta
        if (t + 1) % N == 0:
            m = beta * m + gathered / N
            theta = theta - epsilon * ((1 - c * N + c) * beta * m + delta / N)
            gathered = torch.zeros_like(theta)
        else:
            theta = theta - epsilon * (c * beta * m + delta / N)
        after.append(theta)
    return after


def async_diloco(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights of one rank with sequential updates.

    Return none for more ranks, since their order of arrival decides the result.
    """
    if size > 1:
        return []
    (replica,) = born(workload, 1, seed, steps)
    batches = replica.batches()
    theta = vector(replica)
    arrivals = list[Tensor]()
    N = settings["delay"] or 1
    for _ in range(0, steps, settings["interval"]):
        overwrite(replica, theta)
        walk(replica, batches, settings["interval"])
        arrivals.append(theta - vector(replica))
        outer = settings["outer_learning_rate"], settings["outer_momentum"], N, settings["spread"] / N
        theta = delayed_nesterov(torch.zeros_like(theta), arrivals, *outer)[-1] + vector(born(workload, 1, seed, 1)[0])
    overwrite(replica, theta)
    return ended([replica])


ASYNC_DILOCO = Claim(
    paper="Liu et al. 2024, delayed Nesterov and dynamic local updates",
    settings={"interval": 2, "dynamic": False},
    order_free=False,
    reference=async_diloco,
    variants={
        "interval": 1,
        "dynamic": Variant(True, uneven=True),
        "outer_learning_rate": 0.5,
        "outer_momentum": 0.5,
        "delay": 1,
        "spread": 1.0,
        "compression": "int8",
        "server_trains": False,
        "quorum": 2,
        "grace_s": Variant(0.0, given={"quorum": 1}, uneven=True),
    },
    identities=[
        Identity({"quorum": 1}, "diloco", {"interval": 2, "schedule": "naive"}, exact=True, why="it waits for all")
    ],
    payload_bytes=up_and_down,
    contributions=account,
    outcomes=SERVED,
)

FEDBUFF = Claim(
    paper="Nguyen et al. 2022, algorithm 1",
    settings={"interval": 2},
    order_free=False,
    variants={
        "interval": 1,
        "buffer": 1,
        "server_learning_rate": 0.5,
        "damping": "none",
        "max_staleness": Variant(0, given={"buffer": 1}),
        "compression": "int8",
        "server_trains": False,
    },
    payload_bytes=up_and_down,
    contributions=account,
    outcomes=SERVED,
)
