"""Corrections of client drift, the pull of local steps towards the optimum of each rank's own data.

FedProx (Li et al. 2020, algorithm 2) adds mu (y - x) to the gradient at local weights y, where x
are the weights at the start of the round. SCAFFOLD (Karimireddy et al. 2020, algorithm 1) adds
c - c_i, the mean of all control variates minus this rank's own. Its next c_i is the mean gradient
of its local steps. For plain SGD that is option II, c_i - c + (x - y) / (K eta); the mean is
defined for every optimizer and learning rate. c is summed again in each round, so after a loss it
is that of the survivors.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simcluster.algorithms.local_steps.rounds import changed
from simcluster.algorithms.timed import timed
from simcluster.collectives import flatten, unflatten
from simcluster.errors import UsageError
from simcluster.transport import Transport
from simcluster.workloads import Replica


class Drift:
    """The corrections of a round of local steps from *x*. *mu*: that of FedProx. *variates*:
    (c, c_i), or empty without SCAFFOLD.

    If there are variates, *mean* is the mean of the gradients so far.
    """

    def __init__(self, node: Transport, replica: Replica, x: Tensor, mu: float, variates: Sequence[Tensor]) -> None:
        self._node, self._replica, self._x, self._mu, self._variates = node, replica, x, mu, variates
        self._steps = 0
        self.mean = x.new_zeros(len(x) if variates else 0)

    async def corrected(self, gradients: list[Tensor]) -> list[Tensor]:
        """Return *gradients* + mu (y - x) + c - c_i, added in place."""
        if self._variates:
            self._steps += 1
            self.mean = await timed(self._node, _averaged, self.mean, gradients, 1 / self._steps)
            control = await timed(self._node, torch.sub, *self._variates)
            gradients = await timed(self._node, _plus, gradients, control)
        if self._mu:
            pull = await timed(self._node, changed, self._x, self._replica.parameters, self._mu)
            gradients = await timed(self._node, _plus, gradients, pull)
        return gradients


def zero_variates(replica: Replica) -> dict[str, Tensor]:
    """Return the initial c and c_i."""
    return dict.fromkeys(("c", "c_i"), torch.zeros_like(flatten(replica.parameters)))


def check_uncompressed(control_variates: bool, compression: object) -> None:
    """Raise UsageError if control variates would be compressed."""
    if control_variates and compression != "none":
        expected = "none, or control_variates: false; the corrections of all ranks would not cancel"
        raise UsageError("compression", f"{compression!r} with control_variates: true", expected)


def _averaged(mean: Tensor, gradients: Sequence[Tensor], share: float) -> Tensor:
    return mean.lerp(flatten(gradients), share)


def _plus(gradients: Sequence[Tensor], correction: Tensor) -> list[Tensor]:
    return [gradient.add_(piece) for gradient, piece in zip(gradients, unflatten(correction, gradients), strict=True)]
