"""Compressed reduce-scatters: each rank compresses the part of every owner, which restores and adds
all ranks' parts.

With error feedback, each rank keeps what it left out of every part, in double precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from simcluster.algorithms.data_parallel.layer_units import LayerUnit
from simcluster.algorithms.facts import Settings
from simcluster.compression import Codec, Compressor, compressor
from simcluster.compression.compressor import VectorLayout
from simcluster.compression.mean import decoded_sum, sum_cost, swap
from simcluster.compute.running import unaccompanied
from simcluster.errors import UsageError
from simcluster.transport import FREE, Transport
from simcluster.workloads import Replica


def check_compression(settings: Settings) -> Compressor | None:
    """Return the compressor of gradients, or None.

    Raise UsageError for one that needs matrices, or another schedule than that of compressed parts.
    """
    kind = compressor(settings["compression"])
    if kind is not None and kind.kind == "power_sgd":
        raise UsageError("compression", "power_sgd", "another kind: a rank's part of a layer is no matrix")
    if kind is not None and settings["reduce"] not in ("ring", "direct"):
        expected = "ring or direct with compression, which sends each part directly to its owner"
        raise UsageError("reduce", settings["reduce"], expected)
    return kind


class PartCodecs:
    """The streams of compressed gradients that *node* sends: one for each unit and owner.

    *state_bytes*: the size of what error feedback keeps.
    """

    def __init__(self, kind: Compressor, node: Transport, replica: Replica, units: Sequence[LayerUnit]) -> None:
        self._node = node
        self._of = [
            [
                Codec(kind, node.rng, f"gradients/{unit.number}/to {owner}", part)
                for owner, part in enumerate(VectorLayout.of([replica.shapes[p] for p in unit.places]).cut(node.size))
            ]
            for unit in units
        ]
        self.state_bytes = residual_bytes(kind, sum(codec.layout.length for unit in self._of for codec in unit))

    async def sum(self, unit: int, vector: Tensor, tag: str) -> Tensor:
        """Return this rank's part of the sum of all ranks' *vector*, added in rank order."""
        node, codecs = self._node, self._of[unit]
        cost = sum((codec.encode_cost for codec in codecs), start=FREE)
        parts = await node.compute(self._encode, unit, vector, cost=cost)
        came = await swap(unaccompanied(node), parts, tag)
        return await node.compute(decoded_sum, codecs[node.rank], came, cost=sum_cost(codecs[node.rank], node.size))

    def _encode(self, unit: int, vector: Tensor) -> list[list[Tensor]]:
        parts = vector.tensor_split(self._node.size)
        return [codec.encode([part]) for codec, part in zip(self._of[unit], parts, strict=True)]

    def checkpoint_state(self) -> dict[str, Any]:
        return {"units": [[codec.checkpoint_state() for codec in codecs] for codecs in self._of]}

    def load_checkpoint_state(self, state: Mapping[str, Any]) -> None:
        for codecs, saved in zip(self._of, state["units"], strict=True):
            for codec, each in zip(codecs, saved, strict=True):
                codec.load_checkpoint_state(each)


def residual_bytes(kind: Compressor | None, elements: int) -> int:
    """Return the size of the residuals of a gradient of *elements* numbers."""
    return 8 * elements if kind is not None and kind.feeds_back else 0
