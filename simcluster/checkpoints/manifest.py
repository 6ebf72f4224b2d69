"""The manifest of a checkpoint: a small file that states the step, the run, and each file's digest.

It is written last, so a checkpoint with a manifest is complete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from simcluster.errors import CheckpointError

FORMAT = 1
TRAINING = ("algorithm", "workload", "seed", "numerics")
"""The keys of an experiment that define the training. A checkpoint with other values for these keys
belongs to another run.
"""

Cut = Literal["step", "filled", "loose"]
""""step": all ranks are at the same step. "filled": the same, except that lost ranks, without which
the others continue, are at the last step that they handed in. "loose": ranks are not in step; rank
0 is at the checkpoint's step, and every other rank at the last step that it handed in.
"""


MOST_RANKS = 100_000
MOST_BATCHES = 10_000
"""Limit on the batches of a rank, per step of the checkpoint: a rank may train this many times as
fast as rank 0.
"""
FILE_BYTES = 64 << 30
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
"""Limits on the values in a manifest.

A manifest may come from an untrusted source, and its values decide how much memory is allocated.
"""


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The digest and the size of a content file, which is named by its digest."""

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=FILE_BYTES)]


class RankEntry(msgspec.Struct, forbid_unknown_fields=True):
    """One rank's part of a checkpoint; the fields are those of
    `simcluster.checkpoints.shard.Shard`.
    """

    rank: Annotated[int, msgspec.Meta(ge=0, lt=MOST_RANKS)]
    step: Count
    batches: Count
    time_s: Seconds
    trees: str
    files: Annotated[dict[str, File], msgspec.Meta(max_length=3)]


class Manifest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A checkpoint of *run* at *step*, the *sequence*-th one written to its directory.

    *config_sha256* is the digest of the TRAINING keys of *config*, the resolved experiment.
    *judged* has rank 0's loss and accuracy on held-out samples, if the run asked for them. Planned
    faults that began by *happened_s* happened in an earlier attempt of the run, and so did those
    with an entry in *happened*. *sha256* is the digest of all other fields.
    """

    format: int = FORMAT
    run: Annotated[str, msgspec.Meta(max_length=200)]
    sequence: Count
    step: Count
    world_size: Annotated[int, msgspec.Meta(ge=1, le=MOST_RANKS)]
    time_s: Seconds
    cut: Cut
    config_sha256: str
    config: dict[str, Any]
    judged: dict[str, float]
    ranks: list[RankEntry]
    happened_s: Seconds | None = None
    happened: list[Any] = []
    sha256: str = ""

    @property
    def behind(self) -> list[int]:
        """The ranks at an earlier step than the others; empty unless the cut of this checkpoint is
        "filled".
        """
        return [entry.rank for entry in self.ranks if entry.step < self.step] if self.cut == "filled" else []


def config_sha256(config: Mapping[str, Any]) -> str:
    """Return the digest of the configuration's TRAINING keys."""
    content = {key: config.get(key) for key in TRAINING}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def encode_manifest(manifest: Manifest) -> bytes:
    manifest.sha256 = _digest(manifest)
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode_manifest(content: bytes, name: str) -> Manifest:
    """Return the manifest that *content* encodes.

    Raise CheckpointError about the file *name* if *content* is not a complete manifest of this
    format, or contradicts itself.
    """
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(name, "something else", f"a manifest ({error})") from None
    if manifest.format != FORMAT:
        raise CheckpointError(name, f"format {manifest.format}", f"{FORMAT}: written by another version of simcluster")
    if manifest.sha256 != _digest(manifest):
        raise CheckpointError(name, "a digest that does not match its content", "a manifest as it was written")
    ranks = sorted(entry.rank for entry in manifest.ranks)
    if len(ranks) != manifest.world_size or ranks != list(range(manifest.world_size)):
        raise CheckpointError(name, f"{len(manifest.ranks)} ranks", f"each of {manifest.world_size}, once")
    for entry in manifest.ranks:
        most = MOST_BATCHES * (manifest.step + 1)
        if entry.batches > most:
            raise CheckpointError(name, f"{entry.batches} batches of rank {entry.rank}", f"at most {most}")
    steps = sorted({entry.step for entry in manifest.ranks})
    if manifest.cut == "step" and steps != [manifest.step]:
        raise CheckpointError(name, f"ranks at steps {steps}", f"all at step {manifest.step}")
    if manifest.cut == "filled" and steps[-1] != manifest.step:
        raise CheckpointError(name, f"ranks at steps {steps}", f"none after step {manifest.step}, and one at it")
    return manifest


def _digest(manifest: Manifest) -> str:
    content = msgspec.to_builtins(manifest)
    del content["sha256"]
    for name, absent in (("happened_s", None), ("happened", [])):
        if content[name] == absent:
            del content[name]  # manifests from before this field have a digest without it
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()
