"""Random cases of the swarm of served models: placement, limits, requests, cancels and faults."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.models.open import open_model
from simcluster.lm.plan.times import Lengths
from simcluster.lm.request import Request, Sampling
from simcluster.lm.serving.replacement import recovery_of
from simcluster.lm.serving.run import answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.topology import Topology
from tests.lm.models.test_trained import SIZES, folder_of

CONTEXT, LAYERS = 24, 3
KINDS = ("crash", "restart", "hang", "cut", "reset", "join", "slow")


@dataclass
class Case:
    """The case of one seed.

    *cancels* has request id -> the time at which the request is cancelled.
    """

    topology: Topology
    layout: PlacementLayout
    limits: dict[str, int]
    requests: list[Request]
    cancels: dict[str, float] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)
    dead_s: float = 1.0


@cache
def model() -> str:
    folder = Path(tempfile.mkdtemp(prefix="served-"))
    folder_of(folder, SIZES)
    return str(folder)


def drawn(seed: int) -> Case:
    """Return the case of *seed*.

    The times of faults and cancels are scaled to the duration of the undisturbed run.
    """
    chance = random.Random(f"served {seed}")
    size = chance.randint(2, 4)
    more = random.Random(f"more {seed}")
    size = more.choice([size, size, size, 5, 6])
    topology = more.choice([Topology.star, Topology.star, Topology.complete])(size)
    kind: Any = chance.choice(["alone", "pipeline", "tensor", "replicas"])
    count = {"alone": 1, "tensor": chance.randint(2, min(3, size))}.get(kind, chance.randint(2, size))
    # With a single request and replicas on all nodes, all nodes except one answer nothing.
    is_alone = more.random() < 0.2
    count = size if is_alone and kind == "replicas" else count
    count = min(count, LAYERS) if kind == "pipeline" else count
    ranks = tuple(chance.sample(range(size), count))
    cuts = sorted(chance.sample(range(1, LAYERS), count - 1)) if kind == "pipeline" else []
    ends = [0, *cuts, LAYERS]
    layers = tuple(b - a for a, b in pairwise(ends)) if kind == "pipeline" else (LAYERS,) * count
    limits = {"blocks": chance.randint(6, 30), "block_tokens": 4, "chunk_tokens": chance.choice([4, 8])}
    limits |= {"batches": chance.randint(1, 3) if kind == "pipeline" else 1, "guesses": chance.choice([0, 0, 3])}
    roles = random.Random(f"roles {seed}")
    prefill = roles.randrange(count) if kind == "replicas" else 0
    requests = []
    for number in range(1 if is_alone else chance.randint(1, 6)):
        prompt = tuple(chance.choices(range(64), k=chance.randint(1, 10)))
        sampling = chance.choice([Sampling(), Sampling(0.8, 40, 0.95, seed=number)])
        requests.append(Request(str(number), prompt, chance.randint(1, CONTEXT - len(prompt)), sampling))
    case = Case(topology, PlacementLayout(kind, ranks, layers, prefill), limits, requests)
    whole = answer_all(setup_of(case, given=True), topology)
    lasts_s = max(answer.times_s[-1] for answer in whole.answers.values())
    arrivals_s = [chance.choice([0.0, chance.uniform(0, lasts_s)]) for _ in requests]
    case.requests = [
        Request(one.id, one.prompt, one.max_tokens, one.sampling, arrival_s=at_s)
        for one, at_s in zip(requests, arrivals_s, strict=True)
    ]
    case.cancels = {one.id: chance.uniform(0, 2 * lasts_s) for one in requests if chance.random() < 0.2}
    case.dead_s = lasts_s / 2
    case.faults = [_fault(chance, case, lasts_s) for _ in range(chance.randint(0, 3))]
    if more.random() < 0.25:
        first = {"node": topology.workers[ranks[0]], "at": f"{more.uniform(0, lasts_s)!r} s"}
        case.faults.append({"kind": more.choice(["crash", "restart", "hang"])} | first)
        case.faults[-1] |= {"after": f"{lasts_s / 4!r} s"} if case.faults[-1]["kind"] == "restart" else {}
    joins = {fault["node"]: fault for fault in reversed(case.faults) if fault["kind"] == "join"}
    case.faults = [fault for fault in case.faults if joins.get(fault.get("node", ""), fault) is fault]
    return case


def _fault(chance: random.Random, case: Case, lasts_s: float) -> dict[str, Any]:
    names = case.topology.workers
    kind, name = chance.choice(KINDS), chance.choice(names)
    at_s, for_s = chance.choice([0.0, chance.uniform(0, 1.5 * lasts_s)]), chance.uniform(0.01, 1.5) * lasts_s
    fault: dict[str, Any] = {"kind": kind, "at": f"{at_s!r} s"}
    if kind == "reset":
        return fault | {"groups": [[name], [other for other in names if other != name]]}
    if kind == "cut":
        link = next(link for link in case.topology.links if name in (link.a, link.b))
        return fault | {"link": link.name, "for": f"{for_s / 4!r} s"}
    more = {"restart": {"after": f"{for_s!r} s"}, "hang": {"for": f"{for_s!r} s"}, "slow": {"factor": 5, "for": "1 s"}}
    if kind == "join":  # a node joins at least slightly late; even the first node may be late
        fault["at"] = f"{for_s!r} s"
    return fault | {"node": name} | more.get(kind, {})


def setup_of(case: Case, *, given: bool = False) -> Setup:
    """Return the setup of *case*, for clients that send its requests.

    If the requests are *given*, the setup contains them and has no recovery.
    """
    shape = open_model(model()).shape
    limits = EngineLimits(context=shape.context, vocabulary=shape.vocabulary, **case.limits)
    recovery = None if given else recovery_of(case.topology, Lengths(8, 16), 2)
    return Setup(
        model(), shape, "f32", "real", case.layout, limits, is_real=False,
        requests=tuple(case.requests) if given else (), recovery=recovery,
    )  # fmt: skip
