"""A load on a cluster: place the model for many requests, offer them at their times, collect the latencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from msgspec.structs import replace as replaced

from simcluster.errors import Problem, UsageError, nearest
from simcluster.lm.load.answers import AnsweredRequest
from simcluster.lm.load.arrivals import OfferedRequest
from simcluster.lm.plan.times import Lengths
from simcluster.lm.request import Request
from simcluster.lm.serving.on_cluster import ClusterModel
from simcluster.lm.serving.run import ServingResult, answer_all
from simcluster.lm.serving.setup import Setup
from simcluster.rng import numpy_stream
from simcluster.topology import Topology

NUMERICS: Final = ("none", "real")

AT_ONCE: Final = 8
"""The requests at once for which the plan ranks placements."""

MOST_PROMPTS: Final = 5 * 10**7
"""Limit on the tokens of all prompts together."""


@dataclass(frozen=True)
class BenchTarget(ClusterModel):
    """A model on a cluster, and whether it computes (*numerics* real) or only times are wanted (none)."""

    numerics: str = "none"

    @property
    def is_timed(self) -> bool:
        return self.numerics == "none"

    def problems(self) -> list[Problem]:
        """Return what is wrong with *numerics*, whatever the model."""
        is_well = self.backend == "sim" or self.numerics == "real"
        checks = (
            (nearest(self.numerics, NUMERICS), self.numerics in NUMERICS),
            (f"real with --backend {self.backend}: real nodes compute", is_well),
        )
        return [Problem("--numerics", repr(self.numerics), expected) for expected, is_well in checks if not is_well]


@dataclass(frozen=True)
class BenchResult:
    """The *answers* of a load in the order of its requests, kind of a failure -> why, and the cluster's part."""

    answers: list[AnsweredRequest]
    details: dict[str, str]
    cluster: ServingResult

    def nodes(self) -> list[dict[str, Any]]:
        """Return each node's part as JSON has it."""
        return [
            {"node": one.node, "layers": one.layers, "busy_s": one.busy_s, "bytes_sent": one.sent_bytes}
            for one in self.cluster.nodes
        ]


def bench_cluster(
    served: BenchTarget,
    topology: Topology,
    load: Sequence[OfferedRequest],
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> BenchResult:
    """Return the outcome of *load* on *topology*. Raise UsageError with all that is wrong, RunError if a node is lost.

    Prompts are random tokens, and answers are as long as *load* says: no token ends one. *options* are the backend's.
    """
    setup = _setup(served, topology, load)
    details, requests = dict[str, str](), list[Request]()
    for number, one in enumerate(load):
        request = Request(str(number), _prompt(served, setup, one, number, seed), one.output_tokens)
        if why := setup.limits.refusal(request):
            details.setdefault("refused", why)
        else:
            requests.append(replace(request, arrival_s=one.arrival_s))
    if not requests:
        raise UsageError(Problem("--prompt-tokens", "no request that can be answered", details["refused"]))
    setup = replaced(setup, requests=tuple(requests))
    found = answer_all(setup, topology, backend=served.backend, seed=seed, options=options)
    return BenchResult([_answer(one, number, found) for number, one in enumerate(load)], details, found)


def _setup(served: BenchTarget, topology: Topology, load: Sequence[OfferedRequest]) -> Setup:
    problems = served.problems()
    if sum(one.prompt_tokens for one in load) > MOST_PROMPTS:
        problems.append(Problem("--requests", "too many tokens of prompts", f"at most {MOST_PROMPTS:,} in all"))
    model = served.opened(topology, problems, only_times=served.is_timed, instead="--numerics none")
    if problems or model is None:
        raise UsageError(problems)
    mean = Lengths(*(round(float(np.mean(one))) for one in _columns(load)))
    return served.placed(topology, model, mean, min(AT_ONCE, len(load)))


def _columns(load: Sequence[OfferedRequest]) -> tuple[list[int], list[int]]:
    return [one.prompt_tokens for one in load], [one.output_tokens for one in load]


def _prompt(served: BenchTarget, setup: Setup, one: OfferedRequest, number: int, seed: int) -> tuple[int, ...]:
    """Return random tokens; without numerics any, because only their number counts."""
    if served.is_timed:
        return (0,) * one.prompt_tokens
    random = numpy_stream(seed, "load", "tokens", str(number))
    return tuple(random.integers(0, setup.shape.vocabulary, one.prompt_tokens).tolist())


def _answer(one: OfferedRequest, number: int, found: ServingResult) -> AnsweredRequest:
    """Return the answer to request *number*, in seconds since the load began."""
    answer = found.answers.get(str(number))
    if answer is None:
        return AnsweredRequest(one.arrival_s, (), one.arrival_s, one.prompt_tokens, 0, "refused")
    times_s = tuple(one.arrival_s + time_s for time_s in answer.times_s)
    error = "" if answer.reason in ("stop", "length") and times_s else answer.reason
    end_s = times_s[-1] if times_s else one.arrival_s
    return AnsweredRequest(one.arrival_s, times_s, end_s, one.prompt_tokens, len(times_s), error)
