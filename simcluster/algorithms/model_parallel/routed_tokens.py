"""The tokens of a batch in one layer of experts: where they go, and how evenly."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from simcluster.algorithms.model_parallel.expert_layout import ExpertPiece
from simcluster.algorithms.model_parallel.expert_load import Counts
from simcluster.unknown_number import UNKNOWN
from simcluster.workloads.layers.experts import ExpertLayer


@dataclass
class ArrivedTokens:
    """The tokens that came from one rank, each once: the *places* of their copies among them, the
    copies' *slots* in a table *like* (tokens, active), and their *weights*.

    *rows*: the copies' outputs. *by_weights*: the gradients with respect to *weights*.
    """

    places: Tensor
    slots: Tensor
    weights: Tensor
    like: Tensor
    rows: Tensor = field(init=False)
    by_weights: Tensor = field(init=False)


@dataclass
class RoutedTokens:
    """The tokens of a batch in one layer of experts: their *chosen* experts and *weights*.

    *index*: the copies that were not dropped, by expert. *counts*: the copies of each rank for each
    expert, of which *kept* were not dropped. *mass*: the sums of all ranks' probabilities. *rows*:
    the outputs of the copies. *by_weights*: the gradients with respect to *weights*. If tokens are
    merged, *sent* are the numbers of tokens that each rank gets, *sums* their places in a table of
    tokens and ranks, and *arrived* those that came from each rank.
    """

    piece: ExpertPiece
    scores: Tensor
    chosen: Tensor
    weights: Tensor
    counts: Counts
    kept: Counts
    mass: Tensor
    index: Tensor
    rows: Tensor = field(init=False)
    by_weights: Tensor = field(init=False)
    sent: list[int] = field(init=False)
    sums: Tensor = field(init=False)
    arrived: list[ArrivedTokens] = field(init=False)

    @property
    def active(self) -> int:
        """The number of experts of each token."""
        return self.piece.whole.active

    @property
    def load(self) -> Counts:
        """The copies for each expert, from all ranks, dropped ones included."""
        total: Counts = self.counts.sum(axis=0)
        return total

    def shares(self) -> Tensor:
        """Return each expert's share of the copies."""
        found = torch.from_numpy(self.load / self.load.sum())
        return found.to(self.scores.dtype).to(self.scores.device)  # MPS takes no float64, not even to convert it

    def metrics(self) -> dict[str, float]:
        """Return the share of the copies that were *dropped*, the load of the *busiest* expert over
        the mean, and the *balance* loss: 1 if loads and probabilities are equal.
        """
        load, total = self.load, int(self.load.sum())
        mass = [UNKNOWN] if self.mass.is_meta else (self.mass.cpu().numpy() * load).tolist()
        balance = sum(mass) * len(load) * self.chosen.shape[1] / total / total
        dropped = 1 - int(self.kept.sum()) / total
        return {"dropped": dropped, "busiest": float(load.max() / load.mean()), "balance": balance}


def shift(layer: ExpertLayer, load: Counts, rate: float) -> None:
    """Move the bias of *layer*'s router by *rate* towards the experts with less than the mean *load*."""
    if rate and not layer.router.weight.is_meta:
        signs = torch.from_numpy(np.sign(load.mean() - load))
        layer.bias += rate * signs.to(layer.bias.dtype).to(layer.bias.device)


def kept_index(chosen: Tensor, counts: Counts, kept: Counts) -> Tensor:
    """Return the copies that are not dropped, by expert, then by token: the first *kept* of the
    *counts* of each expert.
    """
    if chosen.is_meta:
        return torch.empty(int(kept.sum()), dtype=torch.int64, device="meta")
    by_expert = torch.split(chosen.flatten().argsort(stable=True), counts.tolist())
    return torch.cat([copies[:number] for copies, number in zip(by_expert, kept.tolist(), strict=True)])
