"""A load on a cluster: place the model for many requests, offer them at their times, collect the latencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

import numpy as np
from msgspec.structs import replace as replaced

from simcluster.errors import Problem, UsageError, nearest
from simcluster.inference.engine.limits import CHUNK_TOKENS
from simcluster.inference.engine.serve_replicas import Policy
from simcluster.inference.load.answers import Answer
from simcluster.inference.load.arrivals import Offered
from simcluster.inference.load.asked import collected
from simcluster.inference.plan.shape import Shape
from simcluster.inference.plan.times import Lengths
from simcluster.inference.processor import engine_topology
from simcluster.inference.request import Request
from simcluster.rng import numpy_stream
from simcluster.serving.asked import held, model_of, problems_of_chunks, problems_of_names
from simcluster.serving.guessing import NO_GUESSES, Guessing
from simcluster.serving.placing import layout_of, limits_of, policy_of
from simcluster.serving.replan import recovery_of
from simcluster.serving.run import Answers, answer_all
from simcluster.serving.setup import Layout, Setup, SmallModel
from simcluster.topology import Topology

NUMERICS: Final = ("none", "real")

AT_ONCE: Final = 8
"""The requests at once for which the plan ranks placements."""

MOST_PROMPTS: Final = 5 * 10**7
"""Limit on the tokens of all prompts together."""


@dataclass(frozen=True)
class Served:
    """A model on a cluster: its name or file, the *weights*' format, the *placement*, and where the load runs.

    *weights* None: f32, or the model's own format without numerics. *policy*: which replica gets a request.
    *chunk_tokens*: the most prompt tokens per pass.
    """

    model: str
    backend: str = "sim"
    numerics: str = "none"
    placement: str = "auto"
    weights: str | None = None
    policy: Policy | None = None
    chunk_tokens: int = CHUNK_TOKENS
    guessing: Guessing = NO_GUESSES

    def problems(self) -> list[Problem]:
        """Return what is wrong with the names, whatever the model."""
        checks = (
            ("--numerics", self.numerics, nearest(self.numerics, NUMERICS), self.numerics in NUMERICS),
            ("--numerics", self.numerics, f"real with --backend {self.backend}: real nodes compute",
             self.backend == "sim" or self.numerics == "real"),
        )  # fmt: skip
        wrong = [Problem(flag, repr(found), expected) for flag, found, expected, is_well in checks if not is_well]
        wrong += self.guessing.problems(only_times=self.numerics == "none") + problems_of_chunks(self.chunk_tokens)
        return wrong + problems_of_names(self.backend, self.weights, only_times=self.numerics == "none")


@dataclass(frozen=True)
class Benched:
    """The *answers* of a load in the order of its requests, kind of a failure -> why, and the cluster's part."""

    answers: list[Answer]
    details: dict[str, str]
    cluster: Answers

    def nodes(self) -> list[dict[str, Any]]:
        """Return each node's part as JSON has it."""
        return [
            {"node": one.node, "layers": one.layers, "busy_s": one.busy_s, "bytes_sent": one.sent_bytes}
            for one in self.cluster.nodes
        ]


def bench_cluster(
    served: Served,
    topology: Topology,
    load: Sequence[Offered],
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Benched:
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
    return Benched([_answer(one, number, found) for number, one in enumerate(load)], details, found)


def _setup(served: Served, topology: Topology, load: Sequence[Offered]) -> Setup:
    engine_topology(topology, served.backend)
    problems = served.problems()
    if sum(one.prompt_tokens for one in load) > MOST_PROMPTS:
        problems.append(Problem("--requests", "too many tokens of prompts", f"at most {MOST_PROMPTS:,} in all"))
    only_times = served.numerics == "none"
    read = partial(model_of, weights=served.weights, only_times=only_times, instead="--numerics none")
    model = collected(problems, lambda: read(served.model))
    draft = None if model is None else collected(problems, lambda: served.guessing.opened(model, read))
    if problems or model is None:
        raise UsageError(problems)
    _, shape, context = model
    mean = Lengths(*(round(float(np.mean(one))) for one in _columns(load)))
    layout = _layout(served.placement, topology, shape, mean, len(load), draft)
    settings = {"guesses": served.guessing.most, "chunk_tokens": served.chunk_tokens}
    limits = limits_of(layout, topology, shape, context, draft=draft, **settings)
    is_real = served.backend != "sim"
    numerics: Literal["real", "none"] = "none" if only_times else "real"
    policy = policy_of(served.policy, layout)
    recovery = recovery_of(topology, mean, min(AT_ONCE, len(load)))
    return Setup(
        served.model, shape, held(served.weights), numerics, layout, limits, is_real, policy, recovery=recovery,
        draft=draft,
    )  # fmt: skip


def _layout(
    placement: str, topology: Topology, shape: Shape, lengths: Lengths, requests: int, draft: SmallModel | None
) -> Layout:
    """Return the best placement for many of *requests* at once; if none has room for their caches, for one."""
    try:
        return layout_of(placement, topology, shape, lengths, min(AT_ONCE, requests), draft)
    except UsageError:
        return layout_of(placement, topology, shape, lengths, draft=draft)


def _columns(load: Sequence[Offered]) -> tuple[list[int], list[int]]:
    return [one.prompt_tokens for one in load], [one.output_tokens for one in load]


def _prompt(served: Served, setup: Setup, one: Offered, number: int, seed: int) -> tuple[int, ...]:
    """Return random tokens; without numerics any, because only their number counts."""
    if served.numerics == "none":
        return (0,) * one.prompt_tokens
    random = numpy_stream(seed, "load", "tokens", str(number))
    return tuple(random.integers(0, setup.shape.vocabulary, one.prompt_tokens).tolist())


def _answer(one: Offered, number: int, found: Answers) -> Answer:
    """Return the answer to request *number*, in seconds since the load began."""
    answer = found.answers.get(str(number))
    if answer is None:
        return Answer(one.arrival_s, (), one.arrival_s, one.prompt_tokens, 0, "refused")
    times_s = tuple(one.arrival_s + time_s for time_s in answer.times_s)
    error = "" if answer.reason in ("stop", "length") and times_s else answer.reason
    end_s = times_s[-1] if times_s else one.arrival_s
    return Answer(one.arrival_s, times_s, end_s, one.prompt_tokens, len(times_s), error)
