"""A layer of experts: a router sends each token to a few feed-forward networks (Shazeer et al. 2017, section 2)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

MOST_COPIES = 2**24
"""The most copies of the tokens of a rank's batch in a layer, since their numbers travel in float32."""


class ExpertLayer(nn.Module):
    """Add to each token the outputs of *active* of the *experts* for the normalised token, weighted
    by the router.

    Tokens are the rows of all dimensions except the last. *bias* is added to the router's
    probabilities where experts are chosen, not where outputs are weighted (Wang et al. 2024,
    section 3.1). In a `forward` no token is dropped. *spreads*: whether the experts take equal
    numbers of tokens, whatever the router says; costs are counted so, since they must not depend on
    values.
    """

    spreads = False
    bias: Tensor

    def __init__(self, norm: nn.Module, router: nn.Linear, experts: Sequence[nn.Module], active: int) -> None:
        super().__init__()
        self.norm, self.router, self.experts, self.active = norm, router, nn.ModuleList(experts), active
        self.register_buffer("bias", torch.zeros(len(experts)))

    def forward(self, stream: Tensor) -> Tensor:
        tokens = self.norm(stream).flatten(0, -2)
        scores = self.router(tokens)
        chosen = choose(scores, self.bias, self.active)
        counts = even_counts(chosen.numel(), len(self.experts)) if self.spreads else counts_of(chosen, len(self.bias))
        index = torch.arange(chosen.numel()) if self.spreads else chosen.flatten().argsort(stable=True)
        parts = torch.split(copied_rows(tokens, index, self.active), counts)
        rows = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True) if len(part)])
        return combine(stream, rows, index, weigh(scores, chosen))


def _wide(scores: Tensor) -> Tensor:
    """Return *scores* in at least float32, in which torch's autocast computes probabilities, too."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def choose(scores: Tensor, bias: Tensor, active: int) -> Tensor:
    """Return the numbers of each token's experts, ascending, with shape (tokens, active)."""
    return (_wide(scores.detach()).softmax(1) + bias).topk(active, dim=1).indices.sort(dim=1).values


def weigh(scores: Tensor, chosen: Tensor) -> Tensor:
    """Return the weights of the *chosen* experts: their probabilities, which are normalised if a
    token has several experts. (If it has one, the router would get no gradient.)
    """
    weights = _wide(scores).softmax(1).gather(1, chosen)
    return weights / weights.sum(1, keepdim=True) if chosen.shape[1] > 1 else weights


def counts_of(chosen: Tensor, experts: int) -> list[int]:
    """Return the number of tokens that chose each of the *experts*."""
    found: list[int] = torch.bincount(chosen.flatten(), minlength=experts).tolist()
    return found


def tally(scores: Tensor, chosen: Tensor) -> Tensor:
    """Return the number of tokens that chose each expert, then the sum of each expert's
    probabilities, in one vector. It holds counts up to MOST_COPIES exactly.
    """
    probabilities = _wide(scores).softmax(1)
    number = probabilities.new_zeros(scores.shape[1])
    number = number.index_add(0, chosen.flatten(), probabilities.new_ones(chosen.numel()))
    return torch.cat([number, probabilities.sum(0)])


def even_counts(copies: int, experts: int) -> list[int]:
    """Return *copies* divided over the *experts*; the first ones take the remainder."""
    return [copies // experts + (number < copies % experts) for number in range(experts)]


def copied_rows(tokens: Tensor, index: Tensor, active: int) -> Tensor:
    """Return the tokens of the copies *index*. Copy c is for the (c mod *active*)-th expert of token
    c // *active*.
    """
    return tokens.index_select(0, index // active)


def summed_copies(rows: Tensor, index: Tensor, like: Tensor) -> Tensor:
    """Return for each token the sum of its copies' *rows*, in the order of its experts.

    A copy that is not in *index* was dropped, and counts as 0. *like* has shape (tokens, active).
    """
    copies = rows.new_zeros((like.numel(), rows.shape[1])).index_copy(0, index, rows).view(*like.shape, rows.shape[1])
    total = copies[:, 0]
    for number in range(1, like.shape[1]):
        total = total + copies[:, number]
    return total


def combine(stream: Tensor, rows: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Return *stream* plus the weighted sum of each token's outputs; *rows* are those of the copies
    *index*.

    The sum is in the order of the experts, so it does not depend on where these are.
    """
    own = weights.flatten().index_select(0, index)
    return added_copies(stream, rows * own.unsqueeze(1), index, weights)


def weighted_copies(rows: Tensor, index: Tensor, weights: Tensor, like: Tensor) -> Tensor:
    """Return for each token the sum of its copies' *rows*, each times its own of the *weights*; see
    `summed_copies`.
    """
    return summed_copies(rows * weights.unsqueeze(1), index, like)


def added_copies(stream: Tensor, rows: Tensor, index: Tensor, like: Tensor) -> Tensor:
    """Return *stream* plus the sums of the *rows* of each token; see `summed_copies`."""
    return stream + summed_copies(rows, index, like).view_as(stream)


def unweighted_copies(gradient: Tensor, rows: Tensor, places: Tensor, weights: Tensor) -> list[Tensor]:
    """Return the gradients with respect to [*rows*, *weights*] of `weighted_copies`. *gradient* is
    that with respect to its sums, and *places* are the sums that rows are in.
    """
    above = gradient.index_select(0, places)
    return [(above * weights.unsqueeze(1)).to(rows.dtype), (above * rows).sum(1)]


def uncombine(gradient: Tensor, rows: Tensor, index: Tensor, weights: Tensor) -> list[Tensor]:
    """Return the gradients with respect to [*rows*, *weights*] of `combine`."""
    own = weights.flatten().index_select(0, index)
    of_rows, by_own = unweighted_copies(gradient.flatten(0, -2), rows, index // weights.shape[1], own)
    return [of_rows, weights.new_zeros(weights.numel()).index_copy(0, index, by_own).view_as(weights)]


def router_gradient(
    scores: Tensor, chosen: Tensor, by_weights: Tensor, shares: Tensor, balance: float, z: float
) -> Tensor:
    """Return the gradient of the loss with respect to *scores*: through the weights of the chosen
    experts, and of the terms that balance.

    These are *balance* times the sum over tokens and experts of the probability times the expert's
    share of all copies (Fedus et al. 2021, equation 4), and *z* times the sum over tokens of the
    squared log-sum-exp (Zoph et al. 2022, equation 5).
    """
    with torch.enable_grad():
        leaf = scores.detach().requires_grad_()
        loss = (weigh(leaf, chosen) * by_weights).sum()
        if balance:
            loss = loss + balance * (_wide(leaf).softmax(1) * shares).sum()
        if z:
            loss = loss + z * _wide(leaf).logsumexp(1).square().sum()
        return torch.autograd.grad(loss, leaf)[0]
