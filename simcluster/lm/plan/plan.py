"""An inference plan: placements for one request and for many, and what to buy next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from simcluster.errors import Problem, raise_all
from simcluster.lm.plan.cluster_model_costs import ClusterModelCosts
from simcluster.lm.plan.engines import DEFAULT, ENGINES
from simcluster.lm.plan.intervals import RateInterval, rate_interval, source_of, ttft_factors
from simcluster.lm.plan.node_teams import grouped
from simcluster.lm.plan.placements import Placement, Ranking, rank
from simcluster.lm.plan.shape import ModelShape, beyond, described
from simcluster.lm.plan.times import Lengths
from simcluster.lm.request import MOST_TOKENS
from simcluster.topology import Topology
from simcluster.topology.model.purchase import PossiblePurchase

MOST_REQUESTS: Final = 1024
"""Limit on the number of requests at once."""


@dataclass(frozen=True)
class Purchase:
    """A possible purchase, with the best tokens per second after it for each of the rankings."""

    part: str
    place: str
    price_usd: float
    tokens_per_s: tuple[float, ...]


@dataclass(frozen=True)
class InferencePlan:
    """A plan for *shape* on *topology*: rankings of placements for one request and for several.

    *engine* is the name of the engine that answers.
    """

    topology: Topology
    shape: ModelShape
    lengths: Lengths
    rankings: tuple[Ranking, ...]
    purchases: tuple[Purchase, ...]
    engine: str = DEFAULT

    def interval(self, placement: Placement) -> RateInterval:
        """Return the interval of the tokens per second of *placement*."""
        return rate_interval(placement.kind, placement.nodes_together, placement.requests, ENGINES[self.engine])

    def source(self, ranking: Ranking) -> str:
        """Return a sentence on the published rows that the intervals of *ranking* come from."""
        found = [(one.kind, self.interval(one)) for one in ranking.placements]
        if not found:
            return ""
        return source_of(found, ranking.requests, ENGINES[self.engine])

    def best_purchases(self, which: int) -> list[Purchase]:
        """Return the purchases that gain at least a percent in ranking number *which*.

        The best purchase comes first; equal ones are in order of price.
        """
        least = 1.01 * self.rankings[which].best_per_s
        worth = [one for one in self.purchases if one.tokens_per_s[which] > least]
        return sorted(worth, key=lambda one: (-one.tokens_per_s[which], one.price_usd))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-compatible values."""
        rankings = [
            {
                "requests": ranking.requests,
                "placements": [_placement(one, self.interval(one)) for one in ranking.placements],
                "interval_source": self.source(ranking),
                "refused": [asdict(one) for one in ranking.refused],
                "left_out": [{"node": name, "best_tokens_per_s": rate} for name, rate in ranking.left_out],
                "buy": [asdict(one) | {"tokens_per_s": one.tokens_per_s[which]} for one in self.best_purchases(which)],
            }
            for which, ranking in enumerate(self.rankings)
        ]
        model = described(self.shape)
        lengths = {"prompt_tokens": self.lengths.prompt, "output_tokens": self.lengths.output}
        named = {"topology": self.topology.name, "engine": self.engine, "model": model}
        return {**named, **lengths, "rankings": rankings}


def make_plan(
    topology: Topology,
    shape: ModelShape,
    lengths: Lengths,
    requests: int = 1,
    offers: Iterable[PossiblePurchase] = (),
    engine: str = DEFAULT,
) -> InferencePlan:
    """Rank all placements of *shape* on *topology*, and again after each purchase of *offers*.

    *engine* is a name of ENGINES. Raise UsageError if a number is out of range, if prompt and
    answer exceed the context of *shape*, or if *topology* has no worker.
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
    shelf = ClusterModelCosts(topology, shape, lengths, engine=ENGINES[engine])
    rankings = tuple(grouped(shelf, rank(shelf, number)) for number in sorted({1, requests}))
    purchases = []
    for offer in offers:
        shelf = ClusterModelCosts(offer.topology, shape, lengths, engine=ENGINES[engine])
        rates = tuple(_like(shelf, now).best_per_s for now in rankings)
        purchases.append(Purchase(offer.part, offer.place, offer.price_usd, rates))
    return InferencePlan(topology, shape, lengths, rankings, tuple(purchases), engine)


def _like(shelf: ClusterModelCosts, now: Ranking) -> Ranking:
    """Return the ranking on *shelf*, for a cluster similar to that of the ranking *now*.

    Groups of nodes are tried only if they are the best in *now*, or if nothing else fits.
    """
    found = rank(shelf, now.requests, like=now)
    is_grouped = bool(now.placements) and now.placements[0].kind in ("hybrid", "pipelines")
    return grouped(shelf, found) if is_grouped or not found.placements else found


def _placement(placement: Placement, interval: RateInterval) -> dict[str, Any]:
    return {
        "kind": placement.kind,
        "tokens_per_s": placement.tokens_per_s,
        "tokens_per_s_interval": interval.around(placement.tokens_per_s),
        "not_measured_beyond_nodes": interval.most if interval.is_beyond else None,
        "token_s": placement.token_s,
        "ttft_s": placement.ttft_s,
        "ttft_s_interval": [factor * placement.ttft_s for factor in ttft_factors(placement.kind)],
        "bytes_per_token": placement.sent_bytes,
        "nodes": [asdict(part) for part in placement.parts],
    }
