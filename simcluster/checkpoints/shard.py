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

MODEL, OPTIMIZER, ALGORITHM = "model", "optimizer", "algorithm"
"""Files of a rank, separate because content shared by all ranks is stored once."""

OWN, SMALL, LEDGER = "rank", "small", "ledger"
"""State of this rank alone: generators and draws per layer, small tensors, its ledger."""


class Shard(msgspec.Struct):
    """One rank's state at *step*, with *batches* of its batches in it, at *time_s* of the run.

    *trees* is JSON: the values of each part, with references to tensors in that part's file. *files* are safetensors.
    *loose*: ranks are not in step. *judged* has loss and accuracy, if requested. *everybodys*, the batches of each
    rank, is filled in when restoring. The rank is one of *size* in the *group* of that number, initially 0. Its
    *incarnation* is higher than 0 if it joined late or came back.
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
    """A copy of the present state of *replica*, *rng* and *kept*; `files` serialises it, in any thread."""

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
        """Return the tensors of each part that has some, serialised."""
        found = {}
        for name, tensors in self._tensors.items():
            if tensors:
                try:
                    found[name] = safetensors.torch.save(tensors)
                except KeyError as error:
                    raise CheckpointError(name, f"a tensor of {error}", "a dtype that safetensors has") from None
        return found


def own_trees(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rank's own state as JSON: a generator's state is a few thousand small numbers, not worth a file."""
    small: dict[str, Tensor] = {}
    tree = encode(own, OWN, small)
    return {OWN: tree, SMALL: {name: tensor.tolist() for name, tensor in small.items()}}


def own_of(trees: Mapping[str, Any]) -> Any:
    """Return the own state that `own_trees` encoded."""
    small = {name: torch.tensor(values, dtype=torch.uint8) for name, values in trees[SMALL].items()}
    return decode(trees[OWN], small)


def check(trees: str, files: Mapping[str, bytes], place: str) -> None:
    """Raise CheckpointError, which names *place*, unless a shard of *trees* and *files* can be read."""
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
    """Restore *replica* and *rng* to their state when *shard* was captured."""
    trees = json.loads(shard.trees)
    model, optimizer, algorithm = _parts(trees, shard.files)
    own = own_of(trees)
    rng.load_checkpoint_state(own["generators"])
    replica.load_checkpoint_state({"model": model, "optimizer": optimizer, "layers": own["layers"]})
    replica.ledger.load(trees[LEDGER])
    replica.ledger.begin(shard.batches, joined=replica.ledger.joined)
    replica.kept.update(moved(algorithm, replica.device))
    replica.done, replica.at, replica.everybodys = shard.batches, shard.step, list(shard.everybodys)


def _parts(trees: Mapping[str, Any], files: Mapping[str, bytes]) -> list[Any]:
    """Return model, optimizer and algorithm."""
    found = {name: safetensors.torch.load(content) for name, content in files.items()}
    return [decode(trees[name], found.get(name, {})) for name in (MODEL, OPTIMIZER, ALGORITHM)]
