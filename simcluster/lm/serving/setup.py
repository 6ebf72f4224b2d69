"""The configuration of a serving program: the model, its placement, the limits, the requests."""

from __future__ import annotations

from typing import Literal

import msgspec

from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.serve_replicas import Policy
from simcluster.lm.formats import Precision
from simcluster.lm.plan.engines import DEFAULT
from simcluster.lm.plan.placements import Kind
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.processor import NodeProcessor
from simcluster.lm.request import Request


class PlacementLayout(msgspec.Struct, frozen=True):
    """A placement: rank *ranks*[i] holds *layers*[i] layers or, with `tensor`, a shard of each.

    The first *prefill* replicas only compute prompts, and the others only decode. If *prefill* is
    0, each replica does both.
    """

    kind: Kind
    ranks: tuple[int, ...]
    layers: tuple[int, ...]
    prefill: int = 0

    def first_layer(self, place: int) -> int:
        """Return the index of the first layer of the node at index *place* of a pipeline."""
        return sum(self.layers[:place])


class PlacementState(msgspec.Struct, frozen=True):
    """The current placement, by ranks of the topology, and its *limits*.

    *lost* maps the rank of each node that is lost, or has not joined yet, to the reason.
    """

    layout: PlacementLayout
    limits: EngineLimits
    lost: dict[int, str] = {}


class Recovery(msgspec.Struct, frozen=True):
    """The inputs for a new placement, which is made when a node is lost or returns.

    *topology* is the topology's document as JSON. The placement is for *requests* at once, of
    *prompt* and *answer* tokens, with at most *cache_bytes* of cache on every node. The first rank
    of the placement must be one of *firsts*; if *firsts* is empty, it can be any rank.
    """

    topology: str
    prompt: int
    answer: int
    requests: int = 1
    cache_bytes: int | None = None
    firsts: tuple[int, ...] = ()


class Setup(msgspec.Struct, frozen=True):
    """The configuration of all nodes.

    If *numerics* is "none", nodes do not open *model*, and only compute times. *is_real* means that
    nodes are processes. *policy* chooses the replica of a request. *beat_s* is the interval between
    heartbeats of an idle real node. *requests* is empty if a program has another source of
    requests. Without *recovery*, the loss of a node ends the run. *processors* maps each real node
    to what it computes on; simulated nodes compute with one thread of this process. *engine* is the
    name of the engine that computes.
    """

    model: str
    shape: ModelShape
    precision: Precision
    numerics: Literal["real", "none"]
    layout: PlacementLayout
    limits: EngineLimits
    is_real: bool
    policy: Policy = "least_loaded"
    beat_s: float = 5.0
    requests: tuple[Request, ...] = ()
    recovery: Recovery | None = None
    processors: dict[str, NodeProcessor] = {}
    engine: str = DEFAULT

    def written(self) -> str:
        """Return this setup as JSON, for `ClusterJob.config_json`."""
        return msgspec.json.encode(self).decode()


_decoder = msgspec.json.Decoder(Setup)


def read_setup(config_json: str) -> Setup:
    """Return the setup that `Setup.written` encoded."""
    return _decoder.decode(config_json)
