"""The manifest: a small file that completes a checkpoint by naming its step, run, files and digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from simcluster.errors import CheckpointError

FORMAT = 1
TRAINING = ("algorithm", "workload", "seed", "numerics")
"""The keys of an experiment that define the training: a checkpoint with other values belongs to another run."""

Cut = Literal["step", "filled", "loose"]
""""step": every rank at one step. "filled": lost ranks, without which the others continue, at their last step. "loose":
rank 0 at this step, the others wherever they were last, for ranks that are not in step.
"""


MOST_RANKS = 100_000
MOST_BATCHES = 10_000
"""A rank may be that many times as fast as the one that a checkpoint's steps are of."""
FILE_BYTES = 64 << 30
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
"""Bounds of a manifest's values, which may come from elsewhere and decide how much memory is taken."""


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content, named by its digest."""

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=FILE_BYTES)]


class RankEntry(msgspec.Struct, forbid_unknown_fields=True):
    """One rank's part: see `simcluster.checkpoints.shard.Shard`."""

    rank: Annotated[int, msgspec.Meta(ge=0, lt=MOST_RANKS)]
    step: Count
    batches: Count
    time_s: Seconds
    trees: str
    files: Annotated[dict[str, File], msgspec.Meta(max_length=3)]


class Manifest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A checkpoint of *run* at *step*, the *sequence*-th one written to its directory.

    *config_sha256* is the digest of the TRAINING keys of *config*, the resolved experiment. *judged* has rank 0's loss
    and accuracy on held-out samples, if requested. Faults of the plan that began by *happened_s* happened in an earlier
    attempt of the run. *sha256* is the digest of all other fields.
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
    sha256: str = ""

    @property
    def behind(self) -> list[int]:
        """The ranks at an earlier step than the others, if this checkpoint is "filled"."""
        return [entry.rank for entry in self.ranks if entry.step < self.step] if self.cut == "filled" else []


def config_sha256(config: Mapping[str, Any]) -> str:
    """Return the digest of the configuration's TRAINING keys."""
    content = {key: config.get(key) for key in TRAINING}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def encode_manifest(manifest: Manifest) -> bytes:
    manifest.sha256 = _digest(manifest)
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode_manifest(content: bytes, name: str) -> Manifest:
    """Decode *content*. Raises CheckpointError unless it is a complete manifest of this format."""
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
    if content["happened_s"] is None:
        del content["happened_s"]  # manifests from before this field have a digest without it
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()
