"""The tokens of a sequence with sampling rules, on the node that chooses its next tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

import numpy as np
from torch import Tensor

from simcluster.errors import UsageError
from simcluster.lm.engine.batch import NewSequence, RuledSequence
from simcluster.lm.engine.sampling import Tokens
from simcluster.lm.request import Sampling
from simcluster.lm.text.grammar import Allowed, Constraint, GrammarFailed

FAILED: Final = -2
"""The token that is chosen if a grammar allows none."""

Constrain: TypeAlias = Callable[[str], Constraint]
"""A function that returns the constraint of a grammar, for one answer."""


class Sampled(Protocol):
    """A function that chooses the token at index *place* of a sequence, like `sampling.sampled`."""

    def __call__(
        self, logits: Tensor, sampling: Sampling, place: int, before: Tokens = ..., allowed: Allowed | None = ..., /
    ) -> int: ...


class TokenHistory:
    """The tokens of the sequence *opened* by index, and its sampling with the rules of *ruled*.

    *constrain* is needed for a grammar. A token may be chosen again at its index after the loss of
    a node, or after a wrong guess. So a choice only depends on the tokens before that index.
    """

    def __init__(self, opened: NewSequence, ruled: RuledSequence, constrain: Constrain | None = None) -> None:
        self._sampling = replace(opened.sampling, rules=ruled.rules)
        self._tokens: Tokens = np.zeros(opened.capacity, np.int32)
        self._rules = ruled.rules
        self._constrain = constrain
        self._constraint: Constraint | None = None
        first = ruled.rules.first
        self._tokens[first : first + len(ruled.tokens)] = ruled.tokens

    def choose(self, sampled: Sampled, logits: Tensor, place: int) -> int:
        """Return the token that *sampled* chooses at index *place*, and store it.

        Return FAILED if the grammar allows no token, takes too much work, or needs a missing
        library.
        """
        before = self._tokens[:place]
        try:
            allowed = self._allowed(before) if self._rules.grammar else None
        except (GrammarFailed, UsageError):  # too much work; or this machine has no llguidance
            return FAILED
        token = self._tokens[place] = sampled(logits, self._sampling, place, before, allowed)
        return int(token)

    def _allowed(self, before: Tokens) -> Allowed:
        if self._constraint is None:  # made here, because only one node of a pipeline chooses
            assert self._constrain is not None, "a node with real weights has its model's tokens"
            self._constraint = self._constrain(self._rules.grammar)
        return self._constraint.allowed(before[self._rules.begin :].tolist())
