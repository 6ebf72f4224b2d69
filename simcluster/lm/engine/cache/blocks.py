"""The cache of keys and values as blocks of tokens (Kwon et al. 2023, section 4), counted for a whole model.

A block is the keys and values of some consecutive tokens of one sequence in all layers, so every node holds its layers'
part of it. The node with the least room therefore decides the number of blocks.
"""

from __future__ import annotations

from collections.abc import Hashable


class CacheBlocks:
    """A number of blocks of *tokens* each, held by sequences."""

    def __init__(self, total: int, tokens: int) -> None:
        self.total, self.tokens, self.free = total, tokens, total
        self.peak = 0
        self._held: dict[Hashable, int] = {}

    def needed(self, tokens: int) -> int:
        """Return the blocks of a sequence of *tokens*."""
        return -(-tokens // self.tokens)

    def hold(self, sequence: Hashable, tokens: int) -> bool:
        """Let *sequence* hold the blocks of *tokens*; return False, and change nothing, if too few are free."""
        more = self.needed(tokens) - self._held.get(sequence, 0)
        if more > self.free:
            return False
        if more > 0:
            self._held[sequence] = self._held.get(sequence, 0) + more
            self.free -= more
            self.peak = max(self.peak, self.total - self.free)
        return True

    def release(self, sequence: Hashable) -> None:
        """Free all that *sequence* holds."""
        self.free += self._held.pop(sequence, 0)

    def held(self, sequence: Hashable) -> int:
        """Return the blocks that *sequence* holds."""
        return self._held.get(sequence, 0)

    @property
    def holders(self) -> int:
        return len(self._held)
