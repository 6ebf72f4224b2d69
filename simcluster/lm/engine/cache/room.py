"""Room in the cache: the blocks of sequences, and those that are kept afterwards until others need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simcluster.lm.engine.cache.blocks import CacheBlocks
from simcluster.lm.engine.cache.prefixes import Prefixes
from simcluster.lm.engine.limits import EngineLimits


class Room:
    """The blocks of sequences, by number; those of *kept* sequences, which have ended or are set aside, by their slots.

    *forgotten* is called with the slot of each whose blocks go to others.
    """

    def __init__(self, limits: EngineLimits, forgotten: Callable[[int], None]) -> None:
        self.blocks = CacheBlocks(limits.blocks, limits.block_tokens)
        self.kept: dict[int, int] = {}
        self._prefixes, self._forgotten = Prefixes(limits.chunk_tokens), forgotten

    @property
    def share(self) -> float:
        """The share of the blocks that are in use; those of kept prefixes are as good as free."""
        kept = sum(map(self.blocks.held, self.kept.values()))
        return 1 - (self.blocks.free + kept) / self.blocks.total

    def hold(self, number: int, tokens: int, spare: int = -1) -> bool:
        """Let a sequence hold the blocks of *tokens*, if need be those of kept ones except the slot *spare*."""
        blocks = self.blocks
        others = [slot for slot in self._prefixes if slot != spare]
        more = blocks.needed(tokens) - blocks.held(number)
        if more > blocks.free + sum(blocks.held(self.kept[slot]) for slot in others):
            return False
        while not blocks.hold(number, tokens):
            self.forget(others.pop(0))
        return True

    def longest(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Return the slot and the length of the longest kept beginning of *tokens*; see `Prefixes.longest`."""
        return self._prefixes.longest(tokens)

    def keep(self, slot: int, number: int, prompt: Sequence[int]) -> bool:
        """Keep the blocks of a sequence that has ended, for prompts like *prompt*; return False if it is too short."""
        if not self._prefixes.keep(slot, prompt):
            return False
        self.kept[slot] = number
        return True

    def set_aside(self, slot: int, number: int) -> None:
        """Keep the blocks of a sequence that may go on; no other shares them."""
        self._prefixes.hold(slot)
        self.kept[slot] = number

    def resume(self, slot: int) -> None:
        """Let the sequence go on that was set aside."""
        del self.kept[slot]
        self._prefixes.drop(slot)

    def forget(self, slot: int) -> None:
        """Free the blocks that are kept for *slot*, if any."""
        if slot in self.kept:
            self.blocks.release(self.kept.pop(slot))
            self._prefixes.drop(slot)
            self._forgotten(slot)
