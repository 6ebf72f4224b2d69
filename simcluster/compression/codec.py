"""A stream of compressed tensors at one node. It encodes the node's tensors and decodes those of
other nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from torch import Tensor

from simcluster.collectives import flatten
from simcluster.compression.compressor import Compressor, StreamMemory, VectorLayout
from simcluster.compression.kinds import compressor
from simcluster.rng import NodeRandom
from simcluster.transport import FREE, Cost, Transport
from simcluster.workloads.operator_costs import elementwise_cost


class Codec:
    """The stream called *name* of a node with the random generators *rng*.

    Its tensors have the shapes of *like*.

    `compress` and `restore` take device time; `encode` and `decode` are the computations that they
    time. With error feedback (Karimireddy 2019, algorithm 1), call `encode` in the order of the
    stream; `decode` is stateless. With "none", all four return their input at no cost.
    """

    def __init__(
        self, compression: str | Mapping[str, Any] | Compressor | None, rng: NodeRandom, name: str,
        like: Sequence[Tensor] | VectorLayout,
    ) -> None:  # fmt: skip
        self.kind = compressor(compression) if isinstance(compression, (str, Mapping)) else compression
        self.layout = like if isinstance(like, VectorLayout) else VectorLayout.of(like)
        self.memory = StreamMemory(rng, name)
        self.residual: Tensor | None = None

    async def compress(self, node: Transport, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Encode *tensors* on *node*'s device, and return the tensors to send instead of them."""
        if self.kind is None:
            return list(tensors)
        return await node.compute(self.encode, tensors, cost=self.encode_cost)

    async def restore(self, node: Transport, parts: Sequence[Tensor]) -> list[Tensor]:
        """Decode *parts* on *node*'s device, and return the tensors that they encode."""
        if self.kind is None:
            return list(parts)
        return await node.compute(self.decode, parts, cost=self.decode_cost)

    def encode(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        if self.kind is None or not self.layout.length:
            return list(tensors)
        vector, whole = self.compensate(tensors)
        parts = self.kind.encode(vector, self.layout, self.memory)
        if whole is not None:
            self.keep(whole, self.kind.decode(parts, self.layout))
        return parts

    def decode(self, parts: Sequence[Tensor]) -> list[Tensor]:
        if self.kind is None or not self.layout.length:
            return list(parts)
        return self.layout.tensors(self.kind.decode(parts, self.layout))

    def compensate(self, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Return (*tensors* plus the residual as one vector, the same vector in double precision).

        The second vector is None without error feedback. It is in double precision so that sent +
        residual = input to the last bit of float32.
        """
        vector = flatten(tensors)
        if self.kind is None or not self.kind.feeds_back:
            return vector, None
        if self.residual is not None and self.kind.kept_share < 1:
            self.residual.mul_(self.kind.kept_share)
        whole = vector.double() if self.residual is None else self.residual.add_(vector)
        return whole.to(self.layout.dtype), whole

    def keep(self, whole: Tensor, sent: Tensor) -> None:
        """Keep *whole* - *sent* as the residual, which is added to the next vector."""
        self.residual = whole - sent if whole is not self.residual else whole.sub_(sent)

    def checkpoint_state(self) -> dict[str, Any]:
        return {"residual": self.residual, "memory": self.memory.checkpoint_state()}

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        self.residual = state["residual"]
        self.memory.load_checkpoint_state(state["memory"])

    @property
    def encode_cost(self) -> Cost:
        return FREE if self.kind is None else _costs(self.kind, self.layout)[0]

    @property
    def decode_cost(self) -> Cost:
        return FREE if self.kind is None else _costs(self.kind, self.layout)[1]


@lru_cache(maxsize=4096)
def _costs(kind: Compressor, layout: VectorLayout) -> tuple[Cost, Cost]:
    """Return (cost of encoding, cost of decoding), counted on meta tensors: one FLOP per element written."""
    if not layout.length:
        return FREE, FREE
    codec = Codec(kind, NodeRandom(0, ""), "", layout)
    tensors = layout.empty()
    parts = codec.encode(tensors)  # the first call also sets up state; later ones cost the same
    return (
        elementwise_cost(lambda: codec.encode(tensors), f"{kind.kind}/encode"),
        elementwise_cost(lambda: codec.decode(parts), f"{kind.kind}/decode"),
    )
