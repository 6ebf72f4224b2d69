"""A batch: the next tokens of some sequences, which go through all stages together."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from simcluster.lm.request import NO_LOGPROBS, Sampling


class SequenceChunk(msgspec.Struct, frozen=True, array_like=True):
    """The tokens [*start*, *start* + *count*) of the sequence *slot*. If it *samples*, the last one's logits give the
    next token.

    The last tokens are *guesses*: they are checked, and the first that is wrong ends the piece. What a sequence has
    cached from *start* on is void.
    """

    slot: int
    start: int
    count: int
    samples: bool
    guesses: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """The number of tokens, from the end, that need logits."""
        return 1 + len(self.guesses) if self.samples else 0


class NewSequence(msgspec.Struct, frozen=True, array_like=True):
    """A sequence that begins with this batch, with room for *capacity* tokens, and how its tokens are chosen.

    Its first *prefix* tokens are those of the slot *source*, which is not closed before. *logprobs* is its request's.
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


class EngineBatch(msgspec.Struct, frozen=True, array_like=True):
    """The *pieces* of a batch, at most one of a sequence. First, stages make room for those *opened*, and then forget
    those *closed*.
    """

    pieces: tuple[SequenceChunk, ...]
    opened: tuple[NewSequence, ...] = ()
    closed: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(piece.count for piece in self.pieces)

    @property
    def samples(self) -> int:
        """The pieces that give tokens."""
        return sum(piece.samples for piece in self.pieces)

    @property
    def rows(self) -> int:
        """The number of tokens that need logits."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def guesses(self) -> bool:
        """Whether the number of tokens that it gives is known only at its end."""
        return any(piece.guesses for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class IssuedBatch:
    """A batch with the *tokens* of its pieces, one after another: what only the first stage needs."""

    batch: EngineBatch
    tokens: tuple[int, ...]


_decoder = msgspec.json.Decoder(EngineBatch)


def written(batch: EngineBatch) -> str:
    """Return *batch* as a message has it."""
    return msgspec.json.encode(batch).decode()


def read(text: str) -> EngineBatch:
    """Return the batch that `written` wrote. Raises msgspec.ValidationError for anything else."""
    return _decoder.decode(text)
