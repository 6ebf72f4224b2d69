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

from simcluster.backend import BACKENDS
from simcluster.errors import Problem, UsageError
from simcluster.job import ClusterJob, places
from simcluster.lm.plan.times import Lengths
from simcluster.lm.processor import engine_topology
from simcluster.lm.serving.desk.bridge import BrokerServer
from simcluster.lm.serving.desk.front import RequestBroker
from simcluster.lm.serving.foretold import LatencyPredictor
from simcluster.lm.serving.host import PROGRAM, HostingConfig, in_this_process
from simcluster.lm.serving.language import FileLanguage
from simcluster.lm.serving.on_cluster import ClusterModel, offering
from simcluster.lm.serving.placing import held_bytes, names_of
from simcluster.lm.serving.run import faults_on, recovering, run_nodes
from simcluster.lm.serving.setup import PlacementState, Setup
from simcluster.lm.serving.web.served import LostNode, ModelPart, ServedModel, ServedPlacement
from simcluster.runs.record import RunRecord
from simcluster.topology import Topology

LENGTHS: Final = Lengths()
"""The prompt and the answer for which the placement is chosen."""

TIMES: Final = "generate with --prompt-tokens N"

SERVING: Final = ("sim", "sockets")
"""The backends that take requests while they run."""


CHUNK_TOKENS: Final = 128
"""A conversation's turns have their beginning in common, and prefixes are shared in whole chunks."""


@dataclass(frozen=True)
class ServingOptions(ClusterModel):
    """A model to serve, with at most *cache_bytes* of cache on every node."""

    chunk_tokens: int = CHUNK_TOKENS
    cache_bytes: int = 10**9


def hosted(wanted: ServingOptions, topology: Topology) -> tuple[Setup, ServedModel]:
    """Return the setup of *wanted* on *topology*, and the model for the server. Raise UsageError with all problems."""
    problems = []
    if wanted.backend in BACKENDS and wanted.backend not in SERVING:
        expected = f"{' or '.join(SERVING)}, which serve; {wanted.backend} answers `generate` and `bench serving`"
        problems.append(Problem("--backend", f"{wanted.backend!r}", expected))
    model = wanted.opened(topology, problems, only_times=False, instead=TIMES)
    if problems or model is None:
        raise UsageError(problems)
    assert model.file is not None, "it was opened"
    with offering(wanted.model, TIMES):
        language = FileLanguage(model.file)
    firsts = () if wanted.backend == "sim" else _here(topology)
    setup = wanted.placed(topology, model, LENGTHS, cache_bytes=wanted.cache_bytes, firsts=firsts)
    served = ServedModel(
        name=model.file.name,
        vocabulary=model.file.architecture.vocabulary,
        language=language,
        backend=wanted.backend,
        place=partial(_placement, setup, topology),
        created=int(time.time()),
    )
    return setup, served


def _placement(setup: Setup, topology: Topology, placed: PlacementState | None) -> ServedPlacement:
    """Return *setup*'s model as it is *placed*; None: as first."""
    lost: Mapping[int, str] = {}
    if placed is not None:
        setup, lost = replaced(setup, layout=placed.layout, limits=placed.limits), placed.lost
    layout, parts = setup.layout, []
    tokens = setup.limits.blocks * setup.limits.block_tokens
    for place, name in enumerate(names_of(layout, topology)):
        first = layout.first_layer(place) if layout.kind == "pipeline" else 0
        weights_bytes, token_bytes = held_bytes(layout, setup.shape, place)
        layers = first, first + layout.layers[place]
        role = ("prefill" if place < layout.prefill else "decode") if layout.prefill else ""
        parts.append(ModelPart(name, layers, round(weights_bytes), round(tokens * token_bytes), role))
    names = topology.workers
    return ServedPlacement(
        kind=layout.kind,
        context=min(setup.limits.context, tokens),
        parts=tuple(parts),
        predict=LatencyPredictor(setup, topology),
        lost=tuple(LostNode(names[rank], why) for rank, why in sorted(lost.items())),
        unused=tuple(name for rank, name in enumerate(names) if rank not in layout.ranks and rank not in lost),
    )


def _here(topology: Topology) -> tuple[int, ...]:
    """Return the ranks of the nodes that are processes of this machine."""
    found = zip(*places(topology, {}), strict=True)
    return tuple(rank for rank, (address, remote) in enumerate(found) if address is None and remote is None)


def host(setup: Setup, topology: Topology, front: RequestBroker, backend: str, restarts: int = 0) -> RunRecord:
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
            config_json = HostingConfig(setup, key, 0).written()
            job = ClusterJob(topology.workers, config_json, program=PROGRAM, topology=topology, faults=faults)
            return run_nodes(job, backend)
    addresses, remotes = places(topology, {})
    first = setup.layout.ranks[0]
    name = topology.workers[first]
    if remotes[first] is not None or addresses[first] is not None:
        expected = "a placement with its first node on this machine, which has the server"
        raise UsageError(Problem("--placement", f"the first node {name} on another machine", expected))
    bridge = BrokerServer(front)
    bridge.start()
    try:
        config_json = HostingConfig(setup, bridge.key, bridge.port).written()
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
