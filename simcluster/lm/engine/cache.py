"""The cache of keys and values, in blocks of tokens (Kwon et al. 2023, section 4).

A block holds the keys and values of a few consecutive tokens of one sequence in all layers. Every
node stores its layers' part of each block, so the node with the least room decides how many blocks
there are. Blocks may be kept after their sequence has ended, so that a later prompt with the same
beginning can reuse them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from simcluster.lm.engine.limits import EngineLimits


class CacheBlocks:
    """A count of the blocks that each sequence holds, out of *total* blocks of *tokens* each."""

    def __init__(self, total: int, tokens: int) -> None:
        self.total = total
        self.tokens = tokens
        self.free = total
        self._held: dict[Hashable, int] = {}

    def needed(self, tokens: int) -> int:
        """Return the number of blocks that *tokens* of a sequence need."""
        return -(-tokens // self.tokens)

    def hold(self, sequence: Hashable, tokens: int) -> bool:
        """Let *sequence* hold enough blocks for *tokens* in all; return whether enough were free.

        A sequence that already holds more blocks keeps them. If the result is False, nothing has
        changed.
        """
        more = self.needed(tokens) - self._held.get(sequence, 0)
        if more > self.free:
            return False
        if more > 0:
            self._held[sequence] = self._held.get(sequence, 0) + more
            self.free -= more
        return True

    def release(self, sequence: Hashable) -> None:
        """Free all blocks that *sequence* holds."""
        self.free += self._held.pop(sequence, 0)

    def held(self, sequence: Hashable) -> int:
        """Return the number of blocks that *sequence* holds."""
        return self._held.get(sequence, 0)


class Prefixes:
    """The tokens of kept prompts by name, the least recently used first.

    Requests share only whole chunks of *chunk* tokens, because prefill computes whole chunks: the
    rest of a prompt is then split as it would be without the shared prefix.
    """

    def __init__(self, chunk: int) -> None:
        self._chunk = chunk
        self._kept: dict[int, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._kept))

    def keep(self, name: int, prompt: Sequence[int]) -> bool:
        """Keep the whole chunks of *prompt*; return False if it is shorter than a chunk."""
        whole = len(prompt) - len(prompt) % self._chunk
        if whole:
            self._kept[name] = tuple(prompt[:whole])
        return whole > 0

    def hold(self, name: int) -> None:
        """Add *name*, without tokens to share, as the most recently used entry."""
        self._kept[name] = ()

    def longest(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Return (name, length) of the longest kept prefix of *tokens*.

        Return (-1, 0) if not even one chunk matches. The prefix leaves at least one token to
        compute, because the logits of the last token give the next one. If several prompts match
        equally, the most recently used one wins. The winner becomes the most recently used entry.
        """
        best, most = -1, 0
        for name, kept in self._kept.items():
            common, limit = 0, min(len(kept), len(tokens) - 1)
            while common + self._chunk <= limit and self._same(kept, tokens, common):
                common += self._chunk
            if common and common >= most:
                best, most = name, common
        if best >= 0:
            self._kept[best] = self._kept.pop(best)
        return best, most

    def drop(self, name: int) -> None:
        """Forget the entry *name*, which must exist."""
        del self._kept[name]

    def _same(self, kept: tuple[int, ...], tokens: Sequence[int], start: int) -> bool:
        return kept[start : start + self._chunk] == tuple(tokens[start : start + self._chunk])


class Room:
    """The blocks of running sequences, and of *kept* sequences, which lose them on demand.

    Sequences are identified by their numbers. A kept sequence has ended or is set aside; *kept*
    maps its slot to its number. *forgotten* is called with the slot of each kept sequence that
    loses its blocks.
    """

    def __init__(self, limits: EngineLimits, forgotten: Callable[[int], None]) -> None:
        self.blocks = CacheBlocks(limits.blocks, limits.block_tokens)
        self.kept: dict[int, int] = {}
        self._prefixes = Prefixes(limits.chunk_tokens)
        self._most_kept = limits.kept
        self._forgotten = forgotten

    @property
    def share(self) -> float:
        """The fraction of the blocks in use. Blocks of kept sequences count as free."""
        kept = sum(map(self.blocks.held, self.kept.values()))
        return 1 - (self.blocks.free + kept) / self.blocks.total

    def hold(self, number: int, tokens: int, spare: int = -1) -> bool:
        """Let the sequence *number* hold blocks for *tokens*; return whether there are enough.

        If too few are free, kept sequences lose their blocks, the least recently used first. The
        kept sequence in the slot *spare* does not lose its blocks, because the new sequence copies
        its prefix.
        """
        blocks = self.blocks
        if blocks.hold(number, tokens):
            return True
        others = [slot for slot in self._prefixes if slot != spare]
        more = blocks.needed(tokens) - blocks.held(number)
        if more > blocks.free + sum(blocks.held(self.kept[slot]) for slot in others):
            return False
        while not blocks.hold(number, tokens):
            self.forget(others.pop(0))
        return True

    def longest(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Return (slot, length) of the longest kept prefix of *tokens*; see `Prefixes.longest`."""
        return self._prefixes.longest(tokens)

    def keep(self, slot: int, number: int, prompt: Sequence[int]) -> bool:
        """Keep the blocks of the ended sequence *number*, so that later prompts can reuse them.

        They hold the tokens of *prompt*.

        If *prompt* is shorter than a chunk, keep nothing and return False.
        """
        if not self._prefixes.keep(slot, prompt):
            return False
        self.kept[slot] = number
        if len(self.kept) > self._most_kept:
            self.forget(next(iter(self._prefixes)))
        return True

    def set_aside(self, slot: int, number: int) -> None:
        """Keep the blocks of a sequence that may resume. No other sequence can share them."""
        self._prefixes.hold(slot)
        self.kept[slot] = number

    def resume(self, slot: int) -> None:
        """Return the blocks kept for *slot* to the sequence that was set aside there."""
        del self.kept[slot]
        self._prefixes.drop(slot)

    def forget(self, slot: int) -> None:
        """Free the blocks that are kept for *slot*, if any."""
        if slot in self.kept:
            self.blocks.release(self.kept.pop(slot))
            self._prefixes.drop(slot)
            self._forgotten(slot)
