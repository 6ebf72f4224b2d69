"""The claim about expert parallelism: the ranks do what one process with all experts does."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from simcluster.lab.verify.claim import Claim, Identity, Settings, Weights
from simcluster.lab.verify.faults import TOGETHER
from simcluster.workloads import Batch, Workload
from simcluster.workloads.layers.experts import ExpertLayer
from simcluster.workloads.layers.layers import modules_in_order
from simcluster.workloads.steps import Loss


def expert_parallel(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights of one process that takes the ranks' batches as parts of its own.

    autograd differentiates all parts together. Tokens choose one after another, in rank order.
    """
    replicas = [workload.replica(rank, size, seed, steps) for rank in range(size)]
    alone = replicas[0]
    for batches in zip(*(replica.batches() for replica in replicas), strict=True):
        # Each part has a copy of the model, so that the sum over parts is in rank order.
        parts = [copy.deepcopy(alone._model) for _ in replicas]
        chosen = _joined(parts, batches, workload.loss_function, settings)
        alone.apply(_gradients(parts))
        for layer, counts in zip(_expert_layers(alone._model), chosen, strict=True):
            layer.bias += settings["bias_rate"] * torch.sign(counts.mean() - counts)
    return [alone.snapshot()]


def _expert_layers(model: nn.Module) -> list[ExpertLayer]:
    return [module for module in modules_in_order(model) if isinstance(module, ExpertLayer)]


def _joined(
    parts: Sequence[nn.Module], batches: Sequence[Batch], loss_function: Loss, settings: Settings
) -> list[Tensor]:
    """Compute the gradients of the joint loss; return how many tokens of each layer chose each expert."""
    total = sum(map(len, batches))
    streams = [batch.inputs for batch in batches]
    found: list[Tensor] = []
    losses = list[Tensor]()
    for modules in zip(*map(modules_in_order, parts), strict=True):
        if isinstance(modules[0], ExpertLayer):
            streams, counts, loss = _experts(modules, streams, settings)
            found.append(counts)
            losses.append(loss)
        else:
            streams = [module(stream) for module, stream in zip(modules, streams, strict=True)]
    for stream, batch in zip(streams, batches, strict=True):
        losses.append(loss_function(stream, batch.targets) * (len(batch) / total))
    torch.autograd.backward(losses)
    return found


def _gradients(parts: Sequence[nn.Module]) -> list[Tensor]:
    """Return the sum over *parts* of the gradients of each parameter; only the first part's experts are used."""
    found = []
    for parameters in zip(*(part.parameters() for part in parts), strict=True):
        whole = torch.zeros_like(parameters[0])
        for gradient in (parameter.grad for parameter in parameters if parameter.grad is not None):
            whole = whole + gradient
        found.append(whole)
    return found


def _experts(
    layers: Sequence[Any], streams: Sequence[Tensor], settings: Settings
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return (the outputs of the parts of a layer of experts, the tokens that chose each expert, the
    losses that balance).
    """
    first: ExpertLayer = layers[0]
    experts, active = len(first.experts), first.active
    tokens = [layer.norm(stream).flatten(0, -2) for layer, stream in zip(layers, streams, strict=True)]
    scores = [layer.router(rows) for layer, rows in zip(layers, tokens, strict=True)]
    number = sum(map(len, tokens))
    factor = settings["capacity_factor"]
    room = [math.inf if factor is None else math.ceil(number * active / experts * factor - 1e-9)] * experts
    counts = torch.zeros(experts)
    taken: list[list[tuple[int, int]]] = [[] for _ in range(experts)]  # the (part, token)s of each expert
    weights = []
    for part, rows in enumerate(scores):
        whole = rows.softmax(1)
        best = (whole.detach() + first.bias).topk(active).indices
        among = torch.zeros_like(whole).scatter(1, best, 1.0)
        weights.append(whole / (whole * among).sum(1, keepdim=True) if active > 1 else whole)
        for token, chosen in enumerate(best.tolist()):
            for e in sorted(chosen):
                counts[e] += 1
                if len(taken[e]) < room[e]:
                    taken[e].append((part, token))
    added: list[list[list[Tensor]]] = [[[] for _ in rows] for rows in tokens]
    for e, of_expert in enumerate(taken):
        if of_expert:
            outputs = first.experts[e](torch.stack([tokens[part][token] for part, token in of_expert]))
            for (part, token), output in zip(of_expert, outputs, strict=True):
                added[part][token].append(weights[part][token, e] * output)
    joint = torch.cat(scores)
    balance = experts * (counts / counts.sum() * joint.softmax(1).mean(0)).sum()
    z = joint.logsumexp(1).square().mean()
    sums = [torch.stack([sum(found, torch.zeros_like(rows[0])) for found in of_part])
            for rows, of_part in zip(tokens, added, strict=True)]  # fmt: skip
    outputs = [stream + more.view_as(stream) for stream, more in zip(streams, sums, strict=True)]
    return outputs, counts, settings["balance_loss"] * balance + settings["z_loss"] * z


EXPERT_PARALLEL = Claim(
    paper="Lepikhin et al. 2020, section 3; Fedus et al. 2021, section 2.2",
    reference=expert_parallel,
    reference_for=(
        {"capacity_factor": 0.5},
        {"balance_loss": 0.5, "z_loss": 0.1},
        {"bias_rate": 0.05},
        {"schedule": "naive"},
        {"merge": True},
        {"layout": {"data": 3}},
        {"layout": {"pipeline": 3}},
        {"micro_batches": 2},
    ),
    variants={
        "layout": {"pipeline": 3},
        "micro_batches": 2,
        "capacity_factor": 0.5,
        "balance_loss": 0.1,
        "z_loss": 0.1,
        "bias_rate": 0.1,
        "schedule": "naive",
        "gather_interval": 3,
        "load": "uniform",
        "merge": True,
    },
    identities=(
        Identity({}, "one process", why="no token is dropped, and each meets its experts"),
        Identity({}, "all_reduce_dp", why="where the experts are does not matter"),
        Identity({"capacity_factor": 1e6}, "expert_parallel", exact=True, why="room for every token"),
        Identity({"gather_interval": 1}, "expert_parallel", exact=True, why="gathering only looks"),
        Identity({"merge": True}, "expert_parallel", exact=True, why="the two outputs of a token have one sum"),
    ),
    outcomes=TOGETHER,
    workload="mnist_moe",
)
