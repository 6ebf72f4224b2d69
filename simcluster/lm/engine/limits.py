"""The limits of an engine, and the check of a request against them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simcluster.lm.request import Request

CHUNK_TOKENS: Final = 512
"""Default limit on the prompt tokens of a batch."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Limits of an engine: *blocks* of *block_tokens* each, and *context* tokens per sequence.

    A batch prefills at most *chunk_tokens*. At most *running* sequences hold blocks, and at most
    *batches* are in flight. A decoding sequence adds at most *guesses* guessed tokens to a batch.
    At most *kept* ended sequences keep their blocks as prefixes.
    """

    blocks: int
    context: int
    vocabulary: int
    block_tokens: int = 16
    chunk_tokens: int = CHUNK_TOKENS
    running: int = 256
    batches: int = 1
    guesses: int = 0
    kept: int = 2**31

    def refusal(self, request: Request) -> str:
        """Return the reason why *request* can never be answered, or "" if it can."""
        most = len(request.prompt) + request.max_tokens
        if not request.prompt:
            return "the prompt has no token"
        if request.max_tokens < 1:
            return f"max_tokens: found {request.max_tokens}, expected at least 1"
        if strange := [token for token in request.prompt if not 0 <= token < self.vocabulary]:
            return f"the prompt has the token {strange[0]}, but the vocabulary ends at {self.vocabulary - 1}"
        prompt = f"{len(request.prompt):,} tokens of prompt and {request.max_tokens:,} of answer"
        if most > self.context:
            return f"{prompt} exceed the context of {self.context:,}"
        if most > self.blocks * self.block_tokens:
            return f"{prompt} exceed the cache of {self.blocks * self.block_tokens:,} tokens"
        return ""
