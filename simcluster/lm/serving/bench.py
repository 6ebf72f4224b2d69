"""A load on a cluster: place the model, offer each request on arrival, collect the latencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from msgspec.structs import replace as replaced

from simcluster.errors import Problem, UsageError
from simcluster.lm.load.answers import AnsweredRequest
from simcluster.lm.load.arrivals import OfferedRequest
from simcluster.lm.plan.times import Lengths
from simcluster.lm.request import Request
from simcluster.lm.serving.cluster_model import ClusterModel
from simcluster.lm.serving.run import ServingResult, answer_all
from simcluster.lm.serving.setup import Setup
from simcluster.rng import numpy_stream
from simcluster.spelling import nearest
from simcluster.topology import Topology

NUMERICS: Final = ("none", "real")

AT_ONCE: Final = 8
"""Limit on the number of concurrent requests for which the plan ranks placements."""

MOST_PROMPTS: Final = 5 * 10**7
"""Limit on the total number of tokens of all prompts."""


@dataclass(frozen=True)
class BenchTarget(ClusterModel):
    """A model on a cluster, which computes if *numerics* is "real".

    If *numerics* is "none", only times are simulated.
    """

    numerics: str = "none"

    @property
    def is_timed(self) -> bool:
        return self.numerics == "none"

    def problems(self) -> list[Problem]:
        """Return the problems of *numerics*, which do not depend on the model."""
        is_well = self.backend == "sim" or self.numerics == "real"
        checks = (
            (nearest(self.numerics, NUMERICS), self.numerics in NUMERICS),
            (f"real with --backend {self.backend}: real nodes compute", is_well),
        )
        return [Problem("--numerics", repr(self.numerics), expected) for expected, is_well in checks if not is_well]


@dataclass(frozen=True)
class BenchResult:
    """The *answers* to a load, in the order of its requests, and the result of the *cluster*.

    *details* maps each kind of failure to an explanation.
    """

    answers: list[AnsweredRequest]
    details: dict[str, str]
    cluster: ServingResult

    def nodes(self) -> list[dict[str, Any]]:
        """Return a row per node for JSON: its name, layers, busy time and bytes sent."""
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
    """Offer *load* to a cluster on *topology* and return the result; *options* are the backend's.

    Prompts are random tokens. No token ends an answer, so answers have the lengths that *load*
    states. Raise UsageError with all problems, and RunError if a node is lost.
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
        raise UsageError("--prompt-tokens", "no request that can be answered", details["refused"])
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
    """Return random tokens as the prompt of request *number*; zeros if only times are wanted."""
    if served.is_timed:
        return (0,) * one.prompt_tokens
    random = numpy_stream(seed, "load", "tokens", str(number))
    return tuple(random.integers(0, setup.shape.vocabulary, one.prompt_tokens).tolist())


def _answer(one: OfferedRequest, number: int, found: ServingResult) -> AnsweredRequest:
    """Return the answer to request *number*; its times are in seconds since the load began."""
    answer = found.answers.get(str(number))
    if answer is None:
        return AnsweredRequest(one.arrival_s, (), one.arrival_s, one.prompt_tokens, 0, "refused")
    times_s = tuple(one.arrival_s + time_s for time_s in answer.times_s)
    error = "" if answer.reason in ("stop", "length") and times_s else answer.reason
    end_s = times_s[-1] if times_s else one.arrival_s
    return AnsweredRequest(one.arrival_s, times_s, end_s, one.prompt_tokens, len(times_s), error)
