"""The configuration of a serving program: the model, where its parts are, the limits, the given requests."""

from __future__ import annotations

from typing import Literal

import msgspec

from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.serve_replicas import Policy
from simcluster.lm.models.architecture import Precision
from simcluster.lm.plan.placements import Kind
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.request import Request


class PlacementLayout(msgspec.Struct, frozen=True):
    """A placement by rank: rank *ranks*[i] holds *layers*[i] layers; under `tensor` and `replicas` a share of all.

    The first *prefill* replicas only compute prompts, and the others only decode; 0: each does both.
    """

    kind: Kind
    ranks: tuple[int, ...]
    layers: tuple[int, ...]
    prefill: int = 0

    def first_layer(self, place: int) -> int:
        """Return the first layer of the *place*-th node of a pipeline."""
        return sum(self.layers[:place])


class PlacementState(msgspec.Struct, frozen=True):
    """The placement in force, by the ranks of the topology, and its *limits*; the nodes that are *lost*, or have not
    come yet, by rank, and why.
    """

    layout: PlacementLayout
    limits: EngineLimits
    lost: dict[int, str] = {}


class Recovery(msgspec.Struct, frozen=True):
    """How nodes place the model again when one is lost or returns: on *topology*, a document in JSON.

    The placement is for *requests* at once, with *prompt* and *answer* tokens, and at most *cache_bytes* of cache on
    every node. Only a rank of *firsts* can be the first of a placement, any if empty.
    """

    topology: str
    prompt: int
    answer: int
    requests: int = 1
    cache_bytes: int | None = None
    firsts: tuple[int, ...] = ()


class Setup(msgspec.Struct, frozen=True):
    """The configuration of every node. *numerics* none: *model* is not opened, and only times are computed.

    *is_real*: nodes are processes. *policy*: which replica gets a request. *beat_s*: the time between two records
    of idle real nodes. *requests* are given ones; a program with another source has none. Without *recovery* a lost
    node ends the run.
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

    def written(self) -> str:
        """Return this as a job's configuration."""
        return msgspec.json.encode(self).decode()


_decoder = msgspec.json.Decoder(Setup)


def read_setup(config_json: str) -> Setup:
    """Return the setup that `Setup.written` wrote."""
    return _decoder.decode(config_json)
