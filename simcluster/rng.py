"""Random streams keyed by seed and names, so that an additional node, metric or plot does not
change the draws of others.

torch is imported only when a torch stream is made, since a process that only simulates links never
needs it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


def seed_sequence(seed: int, *names: str) -> np.random.SeedSequence:
    """Return the seed sequence of the stream *names* under *seed*.

    It is the same in every process and on every machine.
    """
    # The separator keeps ("ab", "c") apart from ("a", "bc").
    digest = hashlib.sha256("\x00".join(names).encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 32, 4)]
    return np.random.SeedSequence([seed, *words])


def numpy_stream(seed: int, *names: str) -> np.random.Generator:
    """Return a new numpy generator for the stream *names* under *seed*."""
    return np.random.Generator(np.random.PCG64(seed_sequence(seed, *names)))


def torch_stream(seed: int, *names: str) -> torch.Generator:
    """Return a new torch CPU generator for the stream *names* under *seed*."""
    import torch

    # The name "torch" keeps this stream independent of the numpy stream with the same names.
    state = seed_sequence(seed, *names, "torch").generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]) & (2**63 - 1))


@dataclass(frozen=True)
class NodeRandom:
    """The random generators of one node, which are made when they are first used.

    `shared` makes generators that are the same on all nodes of the run.
    """

    seed: int
    node: str

    @cached_property
    def numpy(self) -> np.random.Generator:
        return numpy_stream(self.seed, "node", self.node)

    @cached_property
    def torch(self) -> torch.Generator:
        return torch_stream(self.seed, "node", self.node)

    def shared(self, *names: str) -> np.random.Generator:
        """Return a new generator for the stream *names*, which draws the same numbers on every
        node.
        """
        # Each call starts the stream from its beginning, so nodes agree on its draws without a
        # message.
        return numpy_stream(self.seed, "shared", *names)

    def checkpoint_state(self) -> dict[str, Any]:
        """Return the states of the node's generators for a checkpoint; None for a generator not
        used so far.
        """
        numpy_state = self.numpy.bit_generator.state if "numpy" in self.__dict__ else None
        return {"numpy": numpy_state, "torch": self.torch.get_state() if "torch" in self.__dict__ else None}

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Set the generators to *state*, which `checkpoint_state` returned."""
        if state["numpy"] is not None:
            self.numpy.bit_generator.state = state["numpy"]
        if state["torch"] is not None:
            self.torch.set_state(state["torch"])
