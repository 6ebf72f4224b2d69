"""Host a model for a server: place it, and run its nodes on a backend until the server stops.

This module imports no backend. As in experiments, a backend is imported by name at run time.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace as replaced

from simcluster.backend import BACKENDS
from simcluster.errors import Problem, UsageError
from simcluster.job import ClusterJob, places
from simcluster.lm.plan.times import Lengths
from simcluster.lm.serving.cluster_model import ClusterModel, offering
from simcluster.lm.serving.desk.broker_client import BrokerServer
from simcluster.lm.serving.desk.request_broker import RequestBroker
from simcluster.lm.serving.language import FileLanguage
from simcluster.lm.serving.node_program import PROGRAM, HostingConfig, in_this_process
from simcluster.lm.serving.outages import OutageLog
from simcluster.lm.serving.placement import held_bytes, names_of, while_answering
from simcluster.lm.serving.predicted_latency import LatencyPredictor
from simcluster.lm.serving.run import faults_on, recovering, run_nodes
from simcluster.lm.serving.setup import PlacementState, Setup
from simcluster.lm.serving.web.served_model import LostNode, ModelPart, ServedModel, ServedPlacement
from simcluster.runs.record import RunRecord
from simcluster.topology import Topology

LENGTHS: Final = Lengths()
"""The lengths of prompt and answer for which the plan chooses the placement."""

TIMES: Final = "generate with --prompt-tokens N"

CUSTOM: Final = "custom"
OWN_NUMBERS: Final = "the devices of the topology"
"""CUSTOM is the name of devices that the topology describes by numbers, without a preset.

OWN_NUMBERS describes these devices to users.
"""

SERVING: Final = ("sim", "sockets")
"""The backends that take requests during a run."""


CHUNK_TOKENS: Final = 128
"""A server's default. It is small because the turns of a conversation share their beginning.

Prefixes are shared in whole chunks, so requests share more of a prefix in smaller chunks.
"""


@dataclass(frozen=True)
class ServingOptions(ClusterModel):
    """A model to serve, with at most *cache_bytes* of cache on every node."""

    chunk_tokens: int = CHUNK_TOKENS
    cache_bytes: int = 10**9


def hosted(wanted: ServingOptions, topology: Topology) -> tuple[Setup, ServedModel]:
    """Return the setup of *wanted* on *topology*, and its model for the server.

    Raise UsageError with all problems.
    """
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
        vocabulary=model.file.shape.vocabulary,
        language=language,
        backend=wanted.backend,
        place=partial(_placement, setup, topology, wanted.backend == "sim"),
        created=int(time.time()),
    )
    return setup, served


def _placement(setup: Setup, topology: Topology, is_simulated: bool, placed: PlacementState | None) -> ServedPlacement:
    """Return the server's view of *placed*, or of *setup*'s placement if *placed* is None."""
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
        predicted_for=_predicted_for(topology, layout.ranks, is_simulated),
    )


def _predicted_for(topology: Topology, ranks: Sequence[int], is_simulated: bool) -> tuple[str, ...]:
    """Return the names of the devices of *ranks* in whose place this machine computes.

    Predictions are for these devices. A real node of this machine without a preset is left out: its
    numbers are taken to describe this machine.
    """
    here = ranks if is_simulated else [rank for rank in ranks if rank in _here(topology)]
    names = dict.fromkeys(topology.device(topology.workers[rank]).name for rank in here)
    return tuple(OWN_NUMBERS if name == CUSTOM else name for name in names if is_simulated or name != CUSTOM)


def _here(topology: Topology) -> tuple[int, ...]:
    """Return the ranks of the nodes that run on this machine."""
    found = zip(*places(topology, {}), strict=True)
    return tuple(rank for rank, (address, remote) in enumerate(found) if address is None and remote is None)


def host(
    setup: Setup,
    topology: Topology,
    front: RequestBroker,
    backend: str,
    restarts: int = 0,
    tell: Callable[[str], object] = lambda line: None,
) -> RunRecord:
    """Run the nodes of *setup* until *front* is stopped.

    When a node is lost or returns, the model is placed again and the answers continue. If it does
    not fit on the remaining nodes, *front* ends the answers, and all nodes start again. On sockets,
    all nodes start again at most *restarts* times. Between two such starts, single lost nodes are
    restarted at most *restarts* times. *tell* gets a line for each node that is lost or answers
    again.

    Raise UsageError if the first node is not on this machine. Raise RunError if the nodes fail and
    no restart is left.
    """
    faults = faults_on(topology)
    setup = recovering(setup, backend, faults)
    log = OutageLog(topology.workers, setup.layout, tell)
    front.on_open = log.opened
    if backend == "sim":
        topology = while_answering(topology, setup, 0)
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
        raise UsageError("--placement", f"the first node {name} on another machine", expected)
    bridge = BrokerServer(front)

    def again() -> None:
        log.ended(bridge.why)
        bridge.lose()

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
                again=again,
            ),
            backend,
        )
    finally:
        bridge.lose()
        bridge.close()
