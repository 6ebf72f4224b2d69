"""A shard: one rank's part of a checkpoint, as bytes that any process can pass on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from simcluster.checkpoints.tree import decode, encode
from simcluster.compute import moved
from simcluster.errors import CheckpointError
from simcluster.rng import NodeRandom
from simcluster.workloads import Replica
from simcluster.workloads.progress.ledger import Ledger

MODEL = "model"
OPTIMIZER = "optimizer"
ALGORITHM = "algorithm"
"""The files of a rank. They are separate so that content that all ranks share is stored only once.
"""

OWN = "rank"
SMALL = "small"
LEDGER = "ledger"
"""The keys of a rank's own state in its trees: its generators and layers' draws, the small tensors
in these, and its ledger.
"""


class Shard(msgspec.Struct):
    """One rank's state at *step*, after *batches* batches of that rank, at *time_s* of the run.

    *trees* is JSON: the values of each part, with references to the tensors in that part's file.
    *files* has each part's safetensors file. *loose*: the ranks of the run are not in step.
    *judged* has the loss and accuracy of the weights, if the run asked for them. *everybodys*, the
    number of batches of each rank, is filled in by `restored`. *group* is the number of the rank's
    group, which is 0 until ranks regroup, and *size* is that group's number of ranks. *incarnation*
    is above 0 if the rank joined late or rejoined.
    """

    rank: int
    step: int
    batches: int
    time_s: float
    loose: bool
    trees: str
    files: dict[str, bytes]
    judged: dict[str, float] = msgspec.field(default_factory=dict)
    everybodys: list[int] = msgspec.field(default_factory=list)
    group: int = 0
    size: int = 0
    incarnation: int = 0


class CapturedState:
    """A copy of the current state of *replica*, *rng* and *kept*.

    `files` serialises the copy, and may run in any thread.
    """

    def __init__(
        self, replica: Replica, rng: NodeRandom, kept: Mapping[str, Any], places: Sequence[int] | None
    ) -> None:
        state = replica.checkpoint_state(places)
        own = {"generators": rng.checkpoint_state(), "layers": state["layers"]}
        parts = {MODEL: state["model"], OPTIMIZER: state["optimizer"], ALGORITHM: dict(kept)}
        self._tensors: dict[str, dict[str, Tensor]] = {name: {} for name in parts}
        trees = {name: encode(value, name, self._tensors[name]) for name, value in parts.items()}
        self.trees = json.dumps({**trees, **own_trees(own), LEDGER: replica.ledger.notes()})

    def files(self) -> dict[str, bytes]:
        """Return part -> its serialised tensors, for each part that has tensors."""
        found = {}
        for name, tensors in self._tensors.items():
            if tensors:
                try:
                    found[name] = safetensors.torch.save(tensors)
                except KeyError as error:
                    raise CheckpointError(name, f"a tensor of {error}", "a dtype that safetensors has") from None
        return found


def own_trees(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return *own*, the state of one rank, as JSON values.

    The state of a generator is only a few thousand small numbers, so it gets no separate file.
    """
    small: dict[str, Tensor] = {}
    tree = encode(own, OWN, small)
    return {OWN: tree, SMALL: {name: tensor.tolist() for name, tensor in small.items()}}


def own_of(trees: Mapping[str, Any]) -> Any:
    """Return the rank's own state that `own_trees` encoded as *trees*."""
    small = {name: torch.tensor(values, dtype=torch.uint8) for name, values in trees[SMALL].items()}
    return decode(trees[OWN], small)


def check(trees: str, files: Mapping[str, bytes], place: str) -> None:
    """Raise CheckpointError about *place* if no shard can be restored from *trees* and *files*."""
    try:
        told = json.loads(trees)
        _parts(told, files)
        own = own_of(told)
        if own.keys() != {"generators", "layers"}:
            raise ValueError(f"{OWN} of keys {', '.join(own)}")
        Ledger().load(told[LEDGER])
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, RecursionError, SafetensorError) as error:
        what = f"something else ({type(error).__name__}: {error})"
        raise CheckpointError(place, what, "the state of a rank as it was captured") from None


def restore(shard: Shard, replica: Replica, rng: NodeRandom) -> None:
    """Restore *replica* and *rng* to the state that *shard* holds."""
    trees = json.loads(shard.trees)
    model, optimizer, algorithm = _parts(trees, shard.files)
    own = own_of(trees)
    rng.load_checkpoint_state(own["generators"])
    replica.load_checkpoint_state({"model": model, "optimizer": optimizer, "layers": own["layers"]})
    replica.ledger.load(trees[LEDGER])
    replica.ledger.begin(shard.batches, joined=replica.ledger.joined)
    replica.kept.update(moved(algorithm, replica.device))
    replica.done = shard.batches
    replica.at = shard.step
    replica.everybodys = list(shard.everybodys)


def _parts(trees: Mapping[str, Any], files: Mapping[str, bytes]) -> list[Any]:
    """Return the decoded state of the model, the optimizer and the algorithm."""
    found = {name: safetensors.torch.load(content) for name, content in files.items()}
    return [decode(trees[name], found.get(name, {})) for name in (MODEL, OPTIMIZER, ALGORITHM)]
