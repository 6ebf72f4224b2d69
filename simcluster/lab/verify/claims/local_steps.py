"""Claims about algorithms with local steps, and their references without messages."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from simcluster.collectives import flatten, unflatten
from simcluster.lab.verify.claim import Claim, Identity, Settings, Weights
from simcluster.lab.verify.faults import REFORMED, SERVED
from simcluster.lab.verify.naive import (
    BY_PLACE,
    account,
    born,
    ended,
    gradients_of,
    mean,
    models_sent,
    overwrite,
    rounds,
    vector,
    walk,
)
from simcluster.rng import numpy_stream
from simcluster.workloads import Batch, Replica, Workload, train_alone


def local_sgd(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights of FedAvg, FedProx or SCAFFOLD as published.

    In each round, chosen ranks train from the common weights, and the weighted mean of their
    weights is the next model. The changes of their control variates add up to the common one.
    """
    replicas = born(workload, size, seed, steps)
    batches = [replica.batches() for replica in replicas]
    number = max(round(settings["participation"] * size), 1)
    weighted = settings["weighting"] == "samples"
    weights = torch.tensor([float(replica.shard_size) if weighted else 1.0 for replica in replicas]).double()
    weights, own = weights.to(vector(replicas[0]).dtype), [torch.zeros_like(vector(replicas[0]))] * size
    common = own[0]
    for first in range(0, steps, settings["interval"]):
        drawn = numpy_stream(seed, "shared", "local_sgd", str(first)).permutation(size)[:number]
        before = list(own)
        for rank, replica in enumerate(replicas):
            turn = islice(batches[rank], settings["interval"])
            if rank not in drawn:
                deque(turn, maxlen=0)
                continue
            correction = common - own[rank]
            mean_gradient = corrected_walk(replica, turn, settings["proximal"], correction)
            own[rank] = mean_gradient if settings["control_variates"] else own[rank]
        reached = torch.stack([vector(replicas[rank]) for rank in drawn])
        middle = weights[drawn] / weights[drawn].sum() @ reached
        common = common + weights / weights.sum() @ (torch.stack(own) - torch.stack(before))
        for replica in replicas:
            overwrite(replica, middle)
    return ended(replicas)


def corrected_walk(replica: Replica, batches: Iterable[Batch], mu: float, correction: Tensor) -> Tensor:
    """Train *replica* with gradients + *mu* (y - x) + *correction*; return the mean of the gradients."""
    x, found = vector(replica), []
    for batch in batches:
        found.append(flatten(replica.loss_and_gradients(batch)[1]))
        towards = found[-1] + mu * (vector(replica) - x) + correction
        replica.apply(unflatten(towards, replica.parameters))
    return mean(found)


def local_sgd_bytes(size: int, model: int, steps: int, settings: Settings) -> int:
    # The shard sizes of all n ranks, 8 bytes each, go around a ring once.
    sizes = 2 * (size - 1) * 8 * size if settings["weighting"] == "samples" else 0
    vectors = 2 if settings["control_variates"] else 1
    return vectors * rounds(steps, settings["interval"]) * models_sent(size, settings) * model + sizes


LOCAL_SGD = Claim(
    paper="Stich 2019, McMahan et al. 2017, Karimireddy et al. 2020, algorithm 1; Li et al. 2020, algorithm 2",
    settings={"interval": 3},
    reference=local_sgd,
    reference_for=(
        {"participation": 0.5, "schedule": "binomial"},
        {"weighting": "samples"},
        {"participation": 0.4, "weighting": "samples"},
        {"schedule": "hierarchical"},
        {"proximal": 5.0},
        {"control_variates": True},
        {"control_variates": True, "proximal": 5.0, "participation": 0.5, "weighting": "samples"},
    ),
    variants={
        "interval": 2,
        "participation": 0.4,
        "weighting": "samples",
        "proximal": 5.0,
        "control_variates": True,
        "schedule": "direct",
        **BY_PLACE,
        "compression": "int8",
    },
    identities=(
        Identity({"interval": 1}, "one process", why="the mean of one plain step each is a step along the mean"),
        Identity(
            {},
            "diloco",
            {"interval": 3, "outer_learning_rate": 1.0, "outer_momentum": 0.0},
            why="DiLoCo with plain outer SGD",
        ),
        Identity({"interval": 1}, "sparta", {"fraction": 1.0}, why="averaging every step"),
        Identity({"interval": 1, "control_variates": True}, "one process", why="corrections cancel"),
        Identity({}, "local_sgd", {"compression": {"kind": "top_k", "fraction": 1.0}}, why="top-100 % = dense"),
    ),
    payload_bytes=local_sgd_bytes,
    replicas_agree=True,
    outcomes=REFORMED,
)


def shared_at(step: int, length: int, seed: int, fraction: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a mask of the coordinates to average at *step*, each with probability *fraction*."""
    stream = numpy_stream(seed, "shared", "sparta", str(step))
    number = stream.binomial(length, fraction)
    mask = np.zeros(length, dtype=np.bool_)
    mask[stream.choice(length, number, replace=False)] = True
    return mask


def sparta(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights of replicas that train in parallel.

    After each step, the coordinates of a mask that all ranks share are averaged.
    """
    replicas = born(workload, size, seed, steps)
    batches = [replica.batches() for replica in replicas]
    for step in range(1, steps + 1):
        for rank, replica in enumerate(replicas):
            walk(replica, batches[rank], 1)
        all_weights = [vector(replica) for replica in replicas]
        middle = mean(all_weights)
        mask = torch.from_numpy(shared_at(step, len(middle), seed, settings["fraction"]))
        for replica, weights in zip(replicas, all_weights, strict=True):
            overwrite(replica, torch.where(mask, middle, weights))
    return ended(replicas)


SPARTA = Claim(
    paper="Beton et al. 2025",
    reference=sparta,
    reference_for=({"fraction": 0.5},),
    variants={"fraction": 0.5},
    identities=(
        Identity({"fraction": 1.0}, "local_sgd", {"interval": 1}, why="with p = 1 all is averaged every step"),
        Identity({"fraction": 1.0}, "one process", why="plain steps, averaged one by one"),
    ),
    outcomes=REFORMED,
)


def waves(size: int) -> list[Tensor]:
    """Return the orthonormal DCT-II basis of *size* dimensions, one vector per frequency."""
    basis = []
    for frequency in range(size):
        wave = [math.cos(math.pi * frequency * (2 * place + 1) / (2 * size)) for place in range(size)]
        length = math.sqrt(sum(value * value for value in wave))
        basis.append(torch.tensor([value / length for value in wave], dtype=torch.float64))
    return basis


def fast_components(m: Tensor, basis: Sequence[Tensor], k: int) -> Tensor:
    """Return the part of *m* formed by the *k* largest coefficients of each chunk."""
    fast = []
    for chunk in torch.split(m.double(), len(basis)):
        whole = torch.cat([chunk, chunk.new_zeros(len(basis) - len(chunk))])
        coefficients = [float(whole @ wave) for wave in basis]
        largest = sorted(range(len(basis)), key=lambda index: -abs(coefficients[index]))[:k]
        kept = sum((coefficients[index] * basis[index] for index in largest), torch.zeros_like(whole))
        fast.append(kept[: len(chunk)])
    return torch.cat(fast).to(m.dtype)


def demo(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights of ranks that share only the fast components of their momentum.

    Each rank removes these components from its momentum. All ranks step along their mean, or along
    the signs of the mean.
    """
    replicas = born(workload, size, seed, steps)
    basis = waves(settings["chunk"])
    momenta: list[Tensor | None] = [None] * size
    for gradients in gradients_of(replicas):
        shared = []
        for rank, before in enumerate(momenta):
            gradient = flatten(gradients[rank])
            m = gradient if before is None else settings["momentum"] * before + gradient
            shared.append(fast_components(m, basis, settings["top_k"]))
            momenta[rank] = m - shared[-1]
        Q = mean(shared)
        direction = Q.sign() if settings["update"] == "sign" else Q
        for replica in replicas:
            replica.apply(unflatten(direction, replica.parameters))
    return ended(replicas)


DEMO = Claim(
    paper="Peng, Quesnelle and Kingma 2024, algorithm 1",
    reference=demo,
    reference_for=({"update": "mean"}, {"chunk": 16, "top_k": 2}),
    variants={"momentum": 0.5, "chunk": 16, "top_k": 2, "update": "mean"},
    identities=(
        Identity({"top_k": 64, "update": "mean"}, "one process", why="with k = s momentum keeps nothing back"),
    ),
    replicas_agree=True,
    outcomes=REFORMED,
)


def easgd(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights under elastic forces, which act all at once or one after another.

    For the asynchronous form, return weights only if there is one rank.
    """
    if size == 1:
        return [train_alone(workload, 1, seed, steps)]
    if settings["form"] == "asynchronous":
        return []
    replicas = born(workload, size, seed, steps)
    centre = vector(replicas[0])
    alpha = settings["beta"] / size
    for step, all_gradients in enumerate(gradients_of(replicas), start=1):
        meets = step % settings["interval"] == 0 or step == steps
        met = centre
        for replica, gradients in zip(replicas, all_gradients, strict=True):
            if meets:
                seen = centre if settings["form"] == "synchronous" else met
                force = alpha * (vector(replica) - seen)
                overwrite(replica, vector(replica) - force)
                met = met + force
            replica.apply(gradients)
        centre = met
    overwrite(replicas[0], centre)
    return ended(replicas)


def easgd_bytes(size: int, model: int, steps: int, settings: Settings) -> int:
    # Asynchronous: a worker sends its weights and gets a force. Synchronous: a ring all-reduce.
    # Round-robin: the centre goes to the next rank. One rank alone sends nothing.
    times = {"asynchronous": 2 * (size - 1), "synchronous": 2 * (size - 1), "round_robin": size if size > 1 else 0}
    return times[settings["form"]] * rounds(steps, settings["interval"]) * model


EASGD = Claim(
    paper="Zhang, Choromanska and LeCun 2015, sections 3 and 4, algorithm 1",
    settings={"interval": 2},
    order_free=False,
    reference=easgd,
    reference_for=(
        {"form": "synchronous"},
        {"form": "round_robin"},
        {"form": "synchronous", "interval": 1},
        {"form": "round_robin", "interval": 3, "beta": 0.3},
    ),
    variants={"form": "synchronous", "interval": 1, "beta": 0.3, "server_trains": False},
    payload_bytes=easgd_bytes,
    contributions=account,
    outcomes=SERVED,
)
