"""A checkpoint as the ranks of a new run receive it: the same ranks, or another number of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from simcluster.checkpoints.manifest import TRAINING, File, Manifest, RankEntry, config_sha256
from simcluster.checkpoints.shard import ALGORITHM, LEDGER, MODEL, OPTIMIZER, Shard, check, own_of, own_trees
from simcluster.checkpoints.store import Checkpoint
from simcluster.checkpoints.tree import SHARDED, decode, encode, walk
from simcluster.errors import CheckpointError
from simcluster.workloads.books import closed
from simcluster.workloads.ledger import Ledger


@dataclass(frozen=True)
class Restored:
    """The state that a run starts from: its ranks' *shards*, at *step* and *time_s* of the *run* that it continues.

    *happened_s*, if given: faults of the plan that began by then have happened.
    """

    run: str
    step: int
    time_s: float
    world_size: int
    shards: list[Shard]
    happened_s: float | None = None


def check_same_training(manifest: Manifest, config: Mapping[str, Any]) -> None:
    """Raise CheckpointError, naming the difference, if *config* defines another training."""
    if manifest.config_sha256 == config_sha256(config):
        return
    for key in TRAINING:
        then, now = manifest.config.get(key), config.get(key)
        if then != now:
            raise CheckpointError(
                key, _short(now, then), f"{_short(then, now)}, as in the checkpoint: it is another run's"
            )
    raise CheckpointError("config_sha256", manifest.config_sha256, "the hash of its config")


def restored(checkpoint: Checkpoint, size: int, *, by_epochs: bool) -> Restored:
    """Return *checkpoint* restored for *size* ranks.

    With the old world size, each rank gets its own state back. Otherwise all get the same weights and optimizer;
    sharded state is joined and split again; per-rank state goes to the rank of its number, and an additional rank gets
    that of its number modulo the old size. *by_epochs*: continue at the step by which as many samples have been used;
    by default at the same step.
    """
    manifest = checkpoint.manifest
    read = _reader(checkpoint)
    for entry in manifest.ranks:
        files = {name: read(file) for name, file in entry.files.items()}
        check(entry.trees, files, f"{checkpoint.path.name}: rank {entry.rank}")
    if size == manifest.world_size:
        shards = [_again(entry, manifest, read) for entry in sorted(manifest.ranks, key=lambda entry: entry.rank)]
        everybodys = [shard.batches for shard in shards]
        _reckon(shards)
    else:
        step = manifest.step * manifest.world_size // size if by_epochs else manifest.step
        everybodys = [step] * size
        shards = _Resized(manifest, size, read).shards(step)
    for shard in shards:
        shard.everybodys, shard.time_s = everybodys, manifest.time_s
    return Restored(manifest.run, shards[0].step, manifest.time_s, manifest.world_size, shards, manifest.happened_s)


def _again(entry: RankEntry, manifest: Manifest, read: Callable[[File], bytes]) -> Shard:
    files = {name: read(file) for name, file in entry.files.items()}
    # A rank that was lost resumes with its last state, at the step of all.
    filled = manifest.cut == "filled"
    step, batches = (manifest.step, manifest.step) if filled else (entry.step, entry.batches)
    return Shard(entry.rank, step, batches, entry.time_s, manifest.cut == "loose", entry.trees, files)


def _reckon(shards: list[Shard]) -> None:
    """Settle the ledgers of the previous run: batches that a server had not applied are lost. Batches that it applied
    beyond a rank's last report count as used, and will be trained on once more.
    """
    trees = [json.loads(shard.trees) for shard in shards]
    for shard, tree, lives in zip(shards, trees, closed([[tree[LEDGER]] for tree in trees], held=True), strict=True):
        own = next(notes for notes in lives if notes["incarnation"] == tree[LEDGER]["incarnation"])
        runs = [run for notes in lives for run in notes["runs"]]
        shard.trees = json.dumps({**tree, LEDGER: {**own, "runs": runs}})


class _Resized:
    """A checkpoint for another number of ranks, *size*."""

    def __init__(self, manifest: Manifest, size: int, read: Callable[[File], bytes]) -> None:
        self._size = size
        entries = sorted(manifest.ranks, key=lambda entry: entry.rank)
        self._trees = [json.loads(entry.trees) for entry in entries]
        self._tensors = [
            {name: safetensors.torch.load(read(file)) for name, file in entry.files.items()} for entry in entries
        ]
        self._time_s = [entry.time_s for entry in entries]

    def shards(self, step: int) -> list[Shard]:
        return [self._shard(rank, step) for rank in range(self._size)]

    def _shard(self, rank: int, step: int) -> Shard:
        old = rank % len(self._trees)
        model = self._joined(MODEL, old)
        optimizer = self._joined(OPTIMIZER, old)
        algorithm = decode(self._trees[old][ALGORITHM], self._parted(old, rank))
        own = own_of(self._trees[old])
        if rank >= len(self._trees):
            own["generators"] = {"numpy": None, "torch": None}  # not started
        tensors: dict[str, dict[str, Tensor]] = {MODEL: {}, OPTIMIZER: {}, ALGORITHM: {}}
        values = {MODEL: model, OPTIMIZER: optimizer, ALGORITHM: algorithm}
        trees = {name: encode(value, name, tensors[name]) for name, value in values.items()}
        # Another world size deals samples out again, so the ledger starts empty.
        trees |= {**own_trees(own), LEDGER: Ledger().notes()}
        files = {name: safetensors.torch.save(found) for name, found in tensors.items() if found}
        return Shard(rank, step, step, self._time_s[old], False, json.dumps(trees), files)

    def _joined(self, part: str, old: int) -> Any:
        """Return rank *old*'s part, completed by what only other ranks have, as stages of a pipeline do."""
        order = [old, *(rank for rank in range(len(self._trees)) if rank != old)]
        found = [decode(self._trees[rank][part], self._tensors[rank].get(part, {})) for rank in order]
        whole = found[0]
        for more in found[1:]:
            mine, theirs = (one if part == MODEL else one["state"] for one in (whole, more))
            for name, value in theirs.items():
                mine.setdefault(name, value)
        return whole

    def _parted(self, old: int, rank: int) -> dict[str, Tensor]:
        """Return the tensors of rank *old*'s algorithm; of sharded ones, *rank*'s part of the whole."""
        tensors = dict(self._tensors[old].get(ALGORITHM, {}))

        def see(kind: str, name: str) -> None:
            if kind == SHARDED:
                whole = torch.cat([found[ALGORITHM][name] for found in self._tensors])
                tensors[name] = whole.tensor_split(self._size)[rank]

        walk(self._trees[old][ALGORITHM], see)
        return tensors


def _reader(checkpoint: Checkpoint) -> Callable[[File], bytes]:
    """Return a reader that reads each file once, however many ranks share it."""
    known: dict[str, bytes] = {}

    def read(file: File) -> bytes:
        if file.sha256 not in known:
            known[file.sha256] = checkpoint.read(file)
        return known[file.sha256]

    return read


def _short(value: Any, other: Any) -> str:
    """Return the parts of *value* that differ from *other*, in one line."""
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        value = {key: part for key, part in value.items() if other.get(key, ...) != part}
    words = json.dumps(value, default=str)
    return words if len(words) <= 200 else f"{words[:197]}..."
