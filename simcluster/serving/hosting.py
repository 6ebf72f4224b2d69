"""Host a model for a server: place it, run its nodes on a backend, and let them answer a desk's requests.

It imports no backend: as for experiments, a backend is imported by name at run time.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace as replaced

from simcluster.errors import Problem, UsageError
from simcluster.experiment.job import ClusterJob, places
from simcluster.experiment.read.keys import BACKENDS
from simcluster.inference.engine.serve_replicas import Policy
from simcluster.inference.load.asked import collected
from simcluster.inference.plan.shape import Shape
from simcluster.inference.plan.times import Lengths
from simcluster.inference.processor import engine_topology
from simcluster.runs.record import RunRecord
from simcluster.serving.asked import held, model_of, offering, problems_of_chunks, problems_of_names
from simcluster.serving.desk.bridge import Bridge
from simcluster.serving.desk.front import Front
from simcluster.serving.foretold import Foretold
from simcluster.serving.guessing import NO_GUESSES, Guessing
from simcluster.serving.host import PROGRAM, Hosting, in_this_process
from simcluster.serving.language import FileLanguage
from simcluster.serving.placing import AUTO, held_bytes, layout_of, limits_of, names_of, policy_of, within
from simcluster.serving.replan import recovery_of
from simcluster.serving.run import faults_on, recovering, run_nodes
from simcluster.serving.setup import Placed, Setup, SmallModel
from simcluster.serving.web.served import Lost, Part, Placement, Served
from simcluster.topology import Topology

LENGTHS: Final = Lengths()
"""The prompt and the answer for which the placement is chosen."""

TIMES: Final = "generate with --prompt-tokens N"

SERVING: Final = ("sim", "sockets")
"""The backends that take requests while they run."""


CHUNK_TOKENS: Final = 128
"""A conversation's turns have their beginning in common, and prefixes are shared in whole chunks."""


@dataclass(frozen=True)
class Wanted:
    """A *model* to serve in *weights* (None: f32) at *placement*, with at most *cache_bytes* of cache on every node.

    *policy*: which replica gets a request. *chunk_tokens*: the most prompt tokens per pass.
    """

    model: str
    backend: str = "sim"
    placement: str = AUTO
    weights: str | None = None
    cache_bytes: int = 10**9
    policy: Policy | None = None
    chunk_tokens: int = CHUNK_TOKENS
    guessing: Guessing = NO_GUESSES


def hosted(wanted: Wanted, topology: Topology) -> tuple[Setup, Served]:
    """Return the setup of *wanted* on *topology*, and the model for the server. Raise UsageError with all problems."""
    engine_topology(topology, wanted.backend)
    problems = problems_of_chunks(wanted.chunk_tokens) + problems_of_names(
        wanted.backend, wanted.weights, only_times=False
    )
    problems += wanted.guessing.problems(only_times=False)
    if wanted.backend in BACKENDS and wanted.backend not in SERVING:
        expected = f"{' or '.join(SERVING)}, which serve; {wanted.backend} answers `generate` and `bench serving`"
        problems.append(Problem("--backend", f"{wanted.backend!r}", expected))
    read = partial(model_of, weights=wanted.weights, instead=TIMES)
    model = collected(problems, lambda: read(wanted.model))
    draft = None if model is None else collected(problems, lambda: wanted.guessing.opened(model, read))
    if problems or model is None:
        raise UsageError(problems)
    file, shape, _ = model
    assert file is not None, "it was opened"
    with offering(wanted.model, TIMES):
        language = FileLanguage(file)
    setup = _setup(wanted, topology, shape, file.architecture.context, draft)
    served = Served(
        name=file.name,
        vocabulary=file.architecture.vocabulary,
        language=language,
        backend=wanted.backend,
        place=partial(_placement, setup, topology),
        created=int(time.time()),
    )
    return setup, served


def _placement(setup: Setup, topology: Topology, placed: Placed | None) -> Placement:
    """Return *setup*'s model as it is *placed*; None: as first."""
    lost: Mapping[int, str] = {}
    if placed is not None:
        setup, lost = replaced(setup, layout=placed.layout, limits=placed.limits), placed.lost
    layout, parts = setup.layout, []
    tokens = setup.limits.blocks * setup.limits.block_tokens
    for place, name in enumerate(names_of(layout, topology)):
        first = layout.first_layer(place) if layout.kind == "pipeline" else 0
        weights_bytes, token_bytes = held_bytes(layout, setup.shape, place, setup.draft)
        layers = first, first + layout.layers[place]
        role = ("prefill" if place < layout.prefill else "decode") if layout.prefill else ""
        parts.append(Part(name, layers, round(weights_bytes), round(tokens * token_bytes), role))
    names = topology.workers
    return Placement(
        kind=layout.kind,
        context=min(setup.limits.context, tokens),
        parts=tuple(parts),
        predict=Foretold(setup, topology),
        lost=tuple(Lost(names[rank], why) for rank, why in sorted(lost.items())),
        unused=tuple(name for rank, name in enumerate(names) if rank not in layout.ranks and rank not in lost),
    )


def _setup(wanted: Wanted, topology: Topology, shape: Shape, context: int, draft: SmallModel | None) -> Setup:
    layout = layout_of(wanted.placement, topology, shape, LENGTHS, draft=draft)
    settings = {"guesses": wanted.guessing.most, "chunk_tokens": wanted.chunk_tokens}
    limits = limits_of(layout, topology, shape, context, draft=draft, **settings)
    limits = within(limits, layout, shape, wanted.cache_bytes, draft)
    policy, is_real = policy_of(wanted.policy, layout), wanted.backend != "sim"
    firsts = _here(topology) if is_real else ()
    recovery = recovery_of(topology, LENGTHS, cache_bytes=wanted.cache_bytes, firsts=firsts)
    return Setup(
        wanted.model, shape, held(wanted.weights), "real", layout, limits, is_real, policy, recovery=recovery,
        draft=draft,
    )  # fmt: skip


def _here(topology: Topology) -> tuple[int, ...]:
    """Return the ranks of the nodes that are processes of this machine."""
    found = zip(*places(topology, {}), strict=True)
    return tuple(rank for rank, (address, remote) in enumerate(found) if address is None and remote is None)


def host(setup: Setup, topology: Topology, front: Front, backend: str, restarts: int = 0) -> RunRecord:
    """Run the nodes until *front* is stopped. Raise UsageError, or RunError if they fail for good.

    When a node is lost or returns, the model is placed again and the answers continue. If it does not
    fit on the remaining nodes, *front* ends the answers, and all nodes start again. On sockets that happens at most
    *restarts* times, and in between a lost node is restarted alone at most as often.
    """
    topology = engine_topology(topology, backend)
    faults = faults_on(topology)
    setup = recovering(setup, backend, faults)
    if backend == "sim":
        key = secrets.token_hex(32)
        with in_this_process(front, key):
            config_json = Hosting(setup, key, 0).written()
            job = ClusterJob(topology.workers, config_json, program=PROGRAM, topology=topology, faults=faults)
            return run_nodes(job, backend)
    addresses, remotes = places(topology, {})
    first = setup.layout.ranks[0]
    name = topology.workers[first]
    if remotes[first] is not None or addresses[first] is not None:
        expected = "a placement with its first node on this machine, which has the server"
        raise UsageError(Problem("--placement", f"the first node {name} on another machine", expected))
    bridge = Bridge(front)
    bridge.start()
    try:
        config_json = Hosting(setup, bridge.key, bridge.port).written()
        return run_nodes(
            ClusterJob(
                names=topology.workers,
                config_json=config_json,
                program=PROGRAM,
                addresses=addresses,
                remotes=remotes,
                topology=topology,
                faults=faults,
                options={"order": False, "max_restarts": restarts, "revivals": restarts},
                again=bridge.lose,
            ),
            backend,
        )
    finally:
        bridge.lose()
        bridge.close()
