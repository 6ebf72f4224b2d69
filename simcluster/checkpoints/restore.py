"""Restore a checkpoint for a new run, which may have a different number of ranks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from simcluster.checkpoints.manifest import TRAINING, Manifest, config_sha256
from simcluster.checkpoints.shard import ALGORITHM, LEDGER, MODEL, OPTIMIZER, Shard, check, own_of, own_trees
from simcluster.checkpoints.store import Checkpoint
from simcluster.checkpoints.tree import decode, encode, sharded_in
from simcluster.documents.captured.source import placeless_config
from simcluster.errors import CheckpointError
from simcluster.workloads.progress.ledger import Ledger
from simcluster.workloads.progress.ledgers import closed


@dataclass(frozen=True)
class RestoredState:
    """The state that a run starts from.

    It continues *run* at *step* and *time_s*, with one of *shards* for each rank. Planned faults
    that began by *happened_s* have happened already; None if unknown. So have those at a step whose
    entries in the plan are in *happened*.
    """

    run: str
    step: int
    time_s: float
    world_size: int
    shards: list[Shard]
    happened_s: float | None = None
    happened: Sequence[Any] = ()


def check_same_training(manifest: Manifest, config: Mapping[str, Any]) -> None:
    """Raise CheckpointError, naming the difference, if *config* defines a different training from
    that of *manifest*, or if the manifest's digest of its config is wrong.
    """
    before, after = placeless_config(manifest.config), placeless_config(config)
    if config_sha256(before) != config_sha256(after):
        for key in TRAINING:
            then, now = before.get(key), after.get(key)
            if then != now:
                expected = f"{_short(then, now)}, as in the checkpoint: it is another run's"
                raise CheckpointError(key, _short(now, then), expected)
    if manifest.config_sha256 != config_sha256(manifest.config):
        raise CheckpointError("config_sha256", manifest.config_sha256, "the hash of its config")


def restored(checkpoint: Checkpoint, size: int, *, by_epochs: bool) -> RestoredState:
    """Return *checkpoint* restored for *size* ranks.

    If the world size is unchanged, each rank gets its previous state. Otherwise all ranks get the
    same weights and optimizer, and sharded state is joined and split again. A rank's own state goes
    to the rank with the same number, and an additional rank gets the state of the old rank with its
    number modulo the old world size. If *by_epochs*, training continues at the step at which the
    new ranks would have used as many samples as the old ranks did; otherwise it continues at the
    checkpoint's step.
    """
    manifest = checkpoint.manifest
    read = cache(checkpoint.read)  # ranks share files
    old = []
    for entry in sorted(manifest.ranks, key=lambda entry: entry.rank):
        files = {name: read(file) for name, file in entry.files.items()}
        check(entry.trees, files, f"{checkpoint.path.name}: rank {entry.rank}")
        # A rank that was lost resumes with its last state, but at the step of the other ranks.
        filled, loose = manifest.cut == "filled", manifest.cut == "loose"
        step, batches = (manifest.step, manifest.step) if filled else (entry.step, entry.batches)
        old.append(Shard(entry.rank, step, batches, entry.time_s, loose, entry.trees, files))
    if size == manifest.world_size:
        shards = old
        everybodys = [shard.batches for shard in shards]
        _reckon(shards)
    else:
        step = manifest.step * manifest.world_size // size if by_epochs else manifest.step
        everybodys = [step] * size
        resized = _ResizedShards(old, size)
        shards = [resized.shard(rank, step) for rank in range(size)]
    for shard in shards:
        shard.everybodys, shard.time_s = everybodys, manifest.time_s
    return RestoredState(
        manifest.run, shards[0].step, manifest.time_s, manifest.world_size, shards,
        manifest.happened_s, manifest.happened,
    )  # fmt: skip


def _reckon(shards: list[Shard]) -> None:
    """Close the ledgers of the previous run in *shards*: batches that a server had not applied are
    lost.

    Batches that the server applied after a rank's last report count as used, and are trained on
    once more.
    """
    trees = [json.loads(shard.trees) for shard in shards]
    for shard, tree, lives in zip(shards, trees, closed([[tree[LEDGER]] for tree in trees], held=True), strict=True):
        own = next(notes for notes in lives if notes["incarnation"] == tree[LEDGER]["incarnation"])
        runs = [run for notes in lives for run in notes["runs"]]
        shard.trees = json.dumps({**tree, LEDGER: {**own, "runs": runs}})


class _ResizedShards:
    """The shards of *size* ranks, made from the *shards* of a checkpoint with a different number of
    ranks.
    """

    def __init__(self, shards: list[Shard], size: int) -> None:
        self._shards, self._size = shards, size
        self._trees = [json.loads(shard.trees) for shard in shards]
        load = safetensors.torch.load
        self._tensors = [{name: load(content) for name, content in shard.files.items()} for shard in shards]

    def shard(self, rank: int, step: int) -> Shard:
        old = rank % len(self._trees)
        values = {part: self._joined(part, old) for part in (MODEL, OPTIMIZER)}
        values[ALGORITHM] = decode(self._trees[old][ALGORITHM], self._parted(old, rank))
        own = own_of(self._trees[old])
        if rank >= len(self._trees):
            # An additional rank starts new generators.
            own["generators"] = {"numpy": None, "torch": None}
        tensors: dict[str, dict[str, Tensor]] = {name: {} for name in values}
        trees = {name: encode(value, name, tensors[name]) for name, value in values.items()}
        # A different world size redistributes the samples, so the ledger starts empty.
        trees |= {**own_trees(own), LEDGER: Ledger().notes()}
        files = {name: safetensors.torch.save(found) for name, found in tensors.items() if found}
        return Shard(rank, step, step, self._shards[old].time_s, False, json.dumps(trees), files)

    def _joined(self, part: str, old: int) -> Any:
        """Return *part* of rank *old*, plus the entries that only other ranks have, such as the
        stages of a pipeline.
        """
        order = [old, *(rank for rank in range(len(self._trees)) if rank != old)]
        found = [decode(self._trees[rank][part], self._tensors[rank].get(part, {})) for rank in order]
        whole = found[0]
        for more in found[1:]:
            mine, theirs = (one if part == MODEL else one["state"] for one in (whole, more))
            for name, value in theirs.items():
                mine.setdefault(name, value)
        return whole

    def _parted(self, old: int, rank: int) -> dict[str, Tensor]:
        """Return the tensors of rank *old*'s algorithm, for the new *rank*.

        A sharded tensor is joined from all old ranks and split again; *rank* gets its part.
        """
        tensors = dict(self._tensors[old].get(ALGORITHM, {}))
        for name in sharded_in(self._trees[old][ALGORITHM]):
            whole = torch.cat([found[ALGORITHM][name] for found in self._tensors])
            tensors[name] = whole.tensor_split(self._size)[rank]
        return tensors


def _short(value: Any, other: Any) -> str:
    """Return the parts of *value* that differ from *other*, in at most 200 characters."""
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        value = {key: part for key, part in value.items() if other.get(key, ...) != part}
    words = json.dumps(value, default=str)
    return words if len(words) <= 200 else f"{words[:197]}..."
