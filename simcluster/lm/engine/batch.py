"""A batch: the next tokens of several sequences, which pass through all stages together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import torch
from torch import Tensor

from simcluster.lm.request import NO_LOGPROBS, Sampling, SamplingRules


class SequenceChunk(msgspec.Struct, frozen=True, array_like=True):
    """The tokens [*start*, *start* + *count*) of the sequence *slot*.

    If *samples* is set, the logits of the last token give the next token. The last tokens may be
    *guesses*: the model checks them and drops the first wrong one and all after it. New keys and
    values overwrite those that the sequence has cached from *start* on.
    """

    slot: int
    start: int
    count: int
    samples: bool
    guesses: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """The number of tokens that need logits; these are the last ones."""
        return 1 + len(self.guesses) if self.samples else 0


class NewSequence(msgspec.Struct, frozen=True, array_like=True):
    """A sequence that begins with this batch, with its sampling settings.

    The stage allocates a cache for *capacity* tokens. It copies the keys and values of the first
    *prefix* tokens from the slot *source*, which is still open. *logprobs* is `Request.logprobs`.
    """

    slot: int
    capacity: int
    temperature: float
    top_k: int
    top_p: float
    seed: int
    source: int = -1
    prefix: int = 0
    logprobs: int = NO_LOGPROBS

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p, self.seed)


class RuledSequence(msgspec.Struct, frozen=True):
    """The sampling *rules* of the sequence *slot*, and its *tokens* so far from `rules.first` on."""

    slot: int
    rules: SamplingRules
    tokens: tuple[int, ...] = ()


class EngineBatch(msgspec.Struct, frozen=True, array_like=True):
    """The *pieces* of a batch, at most one per sequence.

    Before a stage computes the pieces, it makes room for the sequences *opened* and then frees the
    slots *closed*. The order matters: a new sequence may copy its prefix from a slot that closes.
    *ruled* has the sequences with sampling rules that begin or resume with this batch.
    """

    pieces: tuple[SequenceChunk, ...]
    opened: tuple[NewSequence, ...] = ()
    closed: tuple[int, ...] = ()
    ruled: tuple[RuledSequence, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(piece.count for piece in self.pieces)

    @property
    def samples(self) -> int:
        """The number of pieces that yield new tokens."""
        return sum(piece.samples for piece in self.pieces)

    @property
    def rows(self) -> int:
        """The number of tokens that need logits."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def guesses(self) -> bool:
        """Whether any piece has guesses: the model then decides how many new tokens there are."""
        return any(piece.guesses for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class IssuedBatch:
    """A batch with the concatenated *tokens* of its pieces, which only the first stage needs."""

    batch: EngineBatch
    tokens: tuple[int, ...]


def written(batch: EngineBatch) -> str:
    """Return *batch* as JSON, for the header of a message, without `ruled`; see `ruled_tensors`."""
    return msgspec.json.encode((batch.pieces, batch.opened, batch.closed)).decode()


def ruled_tensors(batch: EngineBatch) -> tuple[Tensor, ...]:
    """Return `ruled` of *batch* as a tensor of bytes: it may be too long for a header.

    Return no tensor if no sequence has rules, as is usual.
    """
    if not batch.ruled:
        return ()
    return (torch.frombuffer(bytearray(msgspec.msgpack.encode(batch.ruled)), dtype=torch.uint8),)


def read(text: str, ruled: Sequence[Tensor] = ()) -> EngineBatch:
    """Return the batch that `written` and `ruled_tensors` encoded.

    Raise msgspec.DecodeError for any other content.
    """
    batch = _batch.decode(text)
    if not ruled:
        return batch
    return msgspec.structs.replace(batch, ruled=_ruled.decode(ruled[0].numpy().tobytes()))


_batch = msgspec.json.Decoder(EngineBatch)
_ruled = msgspec.msgpack.Decoder(tuple[RuledSequence, ...])
