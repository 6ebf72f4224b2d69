"""The whole answer: placements for one request and for many, and what to buy next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from simcluster.errors import Problem, raise_all
from simcluster.lm.plan.groups import grouped
from simcluster.lm.plan.placements import Placement, Ranking, rank
from simcluster.lm.plan.shape import ModelShape, beyond, described
from simcluster.lm.plan.shelf import ClusterModelCosts
from simcluster.lm.plan.times import Lengths, exchanged_bytes
from simcluster.lm.request import MOST_TOKENS
from simcluster.topology import Topology
from simcluster.topology.model.purchase import PossiblePurchase

MOST_REQUESTS: Final = 1024
"""Limit on the requests at once."""


@dataclass(frozen=True)
class Purchase:
    """The tokens per second with a purchase, in each of the plan's rankings."""

    part: str
    place: str
    price_usd: float
    tokens_per_s: tuple[float, ...]


@dataclass(frozen=True)
class InferencePlan:
    """Where *shape* should run on *topology*; a ranking for one request and, if more were asked for, one for those."""

    topology: Topology
    shape: ModelShape
    lengths: Lengths
    rankings: tuple[Ranking, ...]
    purchases: tuple[Purchase, ...]

    def best_purchases(self, which: int) -> list[Purchase]:
        """Return the purchases that gain a percent or more in ranking *which*, the best first, then the cheapest."""
        least = 1.01 * self.rankings[which].best_per_s
        worth = [one for one in self.purchases if one.tokens_per_s[which] > least]
        return sorted(worth, key=lambda one: (-one.tokens_per_s[which], one.price_usd))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        rankings = [
            {
                "requests": ranking.requests,
                "placements": [_placement(one, self.shape) for one in ranking.placements],
                "refused": [asdict(one) for one in ranking.refused],
                "left_out": [{"node": name, "best_tokens_per_s": rate} for name, rate in ranking.left_out],
                "buy": [
                    {
                        "part": one.part,
                        "place": one.place,
                        "price_usd": one.price_usd,
                        "tokens_per_s": one.tokens_per_s[which],
                    }
                    for one in self.best_purchases(which)
                ],
            }
            for which, ranking in enumerate(self.rankings)
        ]
        model = described(self.shape)
        lengths = {"prompt_tokens": self.lengths.prompt, "output_tokens": self.lengths.output}
        return {"topology": self.topology.name, "model": model, **lengths, "rankings": rankings}


def make_plan(
    topology: Topology, shape: ModelShape, lengths: Lengths, requests: int = 1, offers: Iterable[PossiblePurchase] = ()
) -> InferencePlan:
    """Rank all placements of *shape* on *topology*, and again with each of *offers*. Raise UsageError with all limits
    that the request exceeds.
    """
    limits = (
        ("--requests", requests, MOST_REQUESTS),
        ("--prompt-tokens", lengths.prompt, MOST_TOKENS),
        ("--output-tokens", lengths.output, MOST_TOKENS),
    )
    problems = [Problem(flag, str(n), f"a number from 1 to {most:,}") for flag, n, most in limits if not 0 < n <= most]
    problems = problems or beyond(shape, lengths.prompt, lengths.output, "--prompt-tokens")
    if not topology.workers:
        problems.append(Problem(f"topology {topology.name}", "no worker", "nodes with a device"))
    raise_all(problems)
    shelf = ClusterModelCosts(topology, shape, lengths)
    rankings = tuple(grouped(shelf, rank(shelf, number)) for number in sorted({1, requests}))
    purchases = []
    for offer in offers:
        shelf = ClusterModelCosts(offer.topology, shape, lengths)
        rates = tuple(_like(shelf, now).best_per_s for now in rankings)
        purchases.append(Purchase(offer.part, offer.place, offer.price_usd, rates))
    return InferencePlan(topology, shape, lengths, rankings, tuple(purchases))


def _like(shelf: ClusterModelCosts, now: Ranking) -> Ranking:
    """Return the ranking of a *shelf* like that of *now*, with groups only if they are best there."""
    found = rank(shelf, now.requests, like=now)
    is_grouped = bool(now.placements) and now.placements[0].kind in ("hybrid", "pipelines")
    return grouped(shelf, found) if is_grouped or not found.placements else found


def _placement(placement: Placement, shape: ModelShape) -> dict[str, Any]:
    hops = len(placement.parts) - 1 if placement.kind == "pipeline" else 0
    is_tensor = placement.kind == "tensor"
    sent = exchanged_bytes(shape, len(placement.parts)) if is_tensor else hops * shape.hidden_bytes(1)
    return {
        "kind": placement.kind,
        "tokens_per_s": placement.tokens_per_s,
        "token_s": placement.token_s,
        "ttft_s": placement.ttft_s,
        "bytes_per_token": placement.sent_bytes or sent,
        "nodes": [asdict(part) for part in placement.parts],
    }
